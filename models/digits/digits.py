"""Handwritten digits, 8 x 8 pixels, 10 classes: two convolutions and two inner products."""

from common import layers as B
from common import recipe

from caffe import layers as L

COMMENTS = {
    "train_test.prototxt": "The data ship with the package; databases are built in a cache on first use.",
    "deploy.prototxt": "Put images of values in [0, 1) into `data`, read `prob`.",
    "solver.prototxt": "24 passes over the 1,500 training digits; 3 batches of 99 are the 297 test digits.\n"
    "The net is beside this file; snapshots go into the working directory.",
}

SETTINGS = dict(param=[dict(lr_mult=1), dict(lr_mult=2)])


def body(n, data, dropout=True):
    top = B.conv_relu(n, "conv1", "relu1", data, 16, 3, pad=1, **SETTINGS)
    top = B.conv_relu(n, "conv2", "relu2", top, 32, 3, pad=1, **SETTINGS)
    top = B.relu(n, "relu3", B.inner_product(n, "ip1", B.max_pool(n, "pool2", top, 2, 2), 64, **SETTINGS))
    if dropout:
        n["drop1"] = L.Dropout(top, dropout_ratio=0.5, in_place=True)
        top = n["drop1"]
    return B.inner_product(n, "ip2", top, 10, **SETTINGS)


def rows(part, batch_size):
    return recipe.lmdb(f"dataset://digits/{part}", batch_size, scale=1 / 256)


def files():
    data = rows("train", 60), rows("test", 99)
    return {
        "train_test.prototxt": recipe.classifier("digits", body, data, layer="digits"),
        "deploy.prototxt": recipe.deploy("digits", lambda n, top: body(n, top, dropout=False), [1, 1, 8, 8]),
        "solver.prototxt": recipe.solver(
            "digits",
            definition="train_test.prototxt",
            prefix="digits_cnn",
            test_iter=3,
            test_interval=150,
            base_lr=0.05,
            lr_policy="step",
            gamma=0.1,
            stepsize=450,
            display=50,
            max_iter=600,
            momentum=0.9,
            weight_decay=0.002,
            snapshot=600,
            random_seed=1,
        ),
    }
