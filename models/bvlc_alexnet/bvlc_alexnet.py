"""AlexNet: 1,000 classes of ImageNet, as Krizhevsky, Sutskever and Hinton's (2012)."""

from common import alexnet, recipe


def files():
    return {
        "train_val.prototxt": recipe.classifier("AlexNet", alexnet.alexnet, recipe.imagenet(227, 256, 50)),
        "deploy.prototxt": recipe.deploy("AlexNet", alexnet.alexnet, [10, 3, 227, 227]),
        "solver.prototxt": recipe.solver(
            "bvlc_alexnet",
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
