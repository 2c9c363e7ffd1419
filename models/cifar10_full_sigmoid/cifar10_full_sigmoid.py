"""The full net for CIFAR-10 with sigmoids: slow to learn, and the measure for batch normalization."""

from common import cifar10
from common import layers as B


def body(n, data):
    top = B.max_pool(n, "pool1", cifar10.conv(n, 1, data), 3, 2)
    top = cifar10.within_channel_norm(n, "norm1", cifar10.sigmoid(n, 1, top))
    top = B.ave_pool(n, "pool2", cifar10.sigmoid(n, 2, cifar10.conv(n, 2, top)), 3, 2)
    top = cifar10.within_channel_norm(n, "norm2", top)
    top = B.ave_pool(n, "pool3", cifar10.sigmoid(n, 3, cifar10.conv(n, 3, top)), 3, 2)
    return B.inner_product(n, "ip1", top, 10, weight_filler=B.gaussian(0.01))


def files():
    return cifar10.files(
        "cifar10_full_sigmoid",
        "CIFAR10_full",
        body,
        test_interval=1000,
        lr_policy="step",
        gamma=1,
        stepsize=5000,
        display=100,
        max_iter=60000,
        weight_decay=0,
        snapshot=10000,
    )
