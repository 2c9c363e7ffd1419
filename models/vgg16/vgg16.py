"""VGG-16: 16 layers with weights, 1,000 classes of ImageNet (Simonyan and Zisserman, 2014)."""

from common import recipe, vgg


def files():
    name = "VGG_ILSVRC_16_layers"
    data = recipe.imagenet(224, 64, 50, mean_value=[103.939, 116.779, 123.68])
    return {
        "train_val.prototxt": recipe.classifier(name, vgg.vgg16, data, top_5=True),
        "deploy.prototxt": recipe.deploy(name, vgg.vgg16, [10, 3, 224, 224]),
        # The paper's batch of 256 in four parts; 74 passes over 1.28 million images.
        "solver.prototxt": recipe.solver(
            "vgg16",
            test_iter=1000,
            test_interval=5000,
            base_lr=0.01,
            lr_policy="step",
            gamma=0.1,
            stepsize=100000,
            display=20,
            max_iter=370000,
            momentum=0.9,
            weight_decay=0.0005,
            snapshot=10000,
            iter_size=4,
        ),
    }
