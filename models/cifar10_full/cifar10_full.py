"""The full net for CIFAR-10: about 81 %, with normalization within channels."""

from common import cifar10
from common import layers as B


def body(n, data):
    top = B.max_pool(n, "pool1", cifar10.conv(n, 1, data), 3, 2)
    top = cifar10.within_channel_norm(n, "norm1", B.relu(n, "relu1", top))
    top = B.ave_pool(n, "pool2", B.relu(n, "relu2", cifar10.conv(n, 2, top)), 3, 2)
    top = cifar10.within_channel_norm(n, "norm2", top)
    # As in Krizhevsky's net, the biases of this convolution have the same rate as its weights.
    top = cifar10.conv(n, 3, top, param=[dict(lr_mult=1), dict(lr_mult=1)])
    top = B.ave_pool(n, "pool3", B.relu(n, "relu3", top), 3, 2)
    strong_decay = [dict(lr_mult=1, decay_mult=250), dict(lr_mult=2, decay_mult=0)]
    return B.inner_product(n, "ip1", top, 10, param=strong_decay, weight_filler=B.gaussian(0.01))


def files():
    return cifar10.files(
        "cifar10_full",
        "CIFAR10_full",
        body,
        test_interval=1000,
        lr_policy="multistep",
        gamma=0.1,
        stepvalue=[60000, 65000],
        display=200,
        max_iter=70000,
        weight_decay=0.004,
        snapshot=10000,
    )
