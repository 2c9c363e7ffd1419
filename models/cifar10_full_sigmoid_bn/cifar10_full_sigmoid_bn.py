"""The full net for CIFAR-10 with sigmoids and batch normalization, which learns at their side."""

from common import cifar10
from common import layers as B

from caffe import layers as L


def normed(n, index, bottom):
    n[f"bn{index}"] = L.BatchNorm(bottom)
    return cifar10.sigmoid(n, index, n[f"bn{index}"])


def conv(n, index, bottom):
    """Without a bias, which the normalization would take away again."""
    return cifar10.conv(n, index, bottom, param=[dict(lr_mult=1)], bias_term=False, bias_filler={})


def body(n, data):
    top = normed(n, 1, B.max_pool(n, "pool1", conv(n, 1, data), 3, 2))
    for index in (2, 3):
        top = B.ave_pool(n, f"pool{index}", normed(n, index, conv(n, index, top)), 3, 2)
    strong = [dict(lr_mult=1, decay_mult=1), dict(lr_mult=1, decay_mult=0)]
    return B.inner_product(n, "ip1", top, 10, param=strong, weight_filler=B.gaussian(0.01))


def files():
    return cifar10.files(
        "cifar10_full_sigmoid_bn",
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
