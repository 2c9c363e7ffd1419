"""CaffeNet: AlexNet with pooling before normalization; 1,000 classes of ImageNet."""

from common import alexnet, recipe


def files():
    return {
        "train_val.prototxt": recipe.classifier("CaffeNet", alexnet.caffenet, recipe.imagenet(227, 256, 50)),
        "deploy.prototxt": recipe.deploy("CaffeNet", alexnet.caffenet, [10, 3, 227, 227]),
        "solver.prototxt": recipe.solver(
            "bvlc_reference_caffenet",
            test_iter=1000,
            test_interval=1000,
            base_lr=0.01,
            lr_policy="step",
            gamma=0.1,
            stepsize=100000,
            display=20,
            max_iter=450000,
            momentum=0.9,
            weight_decay=0.0005,
            snapshot=10000,
        ),
    }
