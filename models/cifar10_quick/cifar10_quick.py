"""The quick net for CIFAR-10: about 75 % in a few minutes."""

from common import cifar10
from common import layers as B


def body(n, data):
    top = B.max_pool(n, "pool1", cifar10.conv(n, 1, data), 3, 2)
    top = B.relu(n, "relu1", top)
    for index in (2, 3):
        top = B.relu(n, f"relu{index}", cifar10.conv(n, index, top))
        top = B.ave_pool(n, f"pool{index}", top, 3, 2)
    top = B.inner_product(n, "ip1", top, 64, weight_filler=B.gaussian(0.1))
    return B.inner_product(n, "ip2", top, 10, weight_filler=B.gaussian(0.1))


def files():
    # The last of the five thousand iterations go at a tenth of the rate.
    return cifar10.files(
        "cifar10_quick",
        "CIFAR10_quick",
        body,
        test_interval=500,
        lr_policy="multistep",
        gamma=0.1,
        stepvalue=4000,
        display=100,
        max_iter=5000,
        weight_decay=0.004,
        snapshot=5000,
    )
