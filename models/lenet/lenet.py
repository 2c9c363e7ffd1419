"""LeNet on MNIST: two convolutions with pooling, two inner products (after LeCun and others, 1998)."""

from common import layers as B
from common import recipe

COMMENTS = {
    "train_test.prototxt": "The databases are what `caffe data mnist models/lenet` writes.",
    "deploy.prototxt": "data: (N, 1, 28, 28), grey values from 0 (paper) to 255 (ink), divided by 256.\n"
    "prob: (N, 10), a probability for each digit.",
    "solver.prototxt": "10,000 iterations of 64 images: 10.7 passes over the 60,000 of MNIST.\n"
    "100 batches of 100 are the 10,000 test images.\n"
    "The rate falls smoothly: base_lr * (1 + gamma * iter) ^ -power; 0.0059 at the end.\n"
    "Paths are relative to the working directory, but the net is also found beside this file.",
}

RATES = [dict(lr_mult=1), dict(lr_mult=2)]


def body(n, data):
    top = B.max_pool(n, "pool1", B.conv(n, "conv1", data, 20, 5, param=RATES), 2, 2)
    top = B.max_pool(n, "pool2", B.conv(n, "conv2", top, 50, 5, param=RATES), 2, 2)
    top = B.relu(n, "relu1", B.inner_product(n, "ip1", top, 500, param=RATES))
    return B.inner_product(n, "ip2", top, 10, param=RATES)


def rows(part, batch_size):
    return recipe.lmdb(f"models/lenet/mnist_{part}_lmdb", batch_size, scale=1 / 256)


def files():
    data = rows("train", 64), rows("test", 100)
    return {
        "train_test.prototxt": recipe.classifier("LeNet", body, data, layer="mnist"),
        "deploy.prototxt": recipe.deploy("LeNet", body, [64, 1, 28, 28]),
        "solver.prototxt": recipe.solver(
            "lenet",
            definition="train_test.prototxt",
            test_iter=100,
            test_interval=500,
            base_lr=0.01,
            lr_policy="inv",
            gamma=0.0001,
            power=0.75,
            display=100,
            max_iter=10000,
            momentum=0.9,
            weight_decay=0.0005,
            snapshot=5000,
        ),
    }
