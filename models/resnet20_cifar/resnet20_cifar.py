"""ResNet-20 for CIFAR-10: 270,000 parameters (He, Zhang, Ren and Sun, 2015)."""

from common import layers as B
from common import recipe

from caffe import layers as L
from caffe import params as P

# Mean red, green and blue of the training images, in units of a byte; divided by 128 afterwards.
TRANSFORM = dict(mean_value=[125.3, 123.0, 113.9], scale=0.0078125)


def conv(n, name, bottom, num_output, relu, **more):
    return B.norm_conv(
        n,
        f"res{name}",
        bottom,
        num_output,
        3,
        bn=f"bn{name}",
        scale=f"scale{name}",
        relu_name=f"res{name}_relu" if relu else None,
        pad=1,
        **more,
    )


def halved(n, block, bottom):
    """A shortcut without parameters: every other pixel, and as many channels of zeros again."""
    name = f"res{block}_branch1"
    pooled = B.max_pool(n, f"{name}_pool", bottom, 1, 2, round_mode=P.Pooling.FLOOR)
    n[f"{name}_zeros"] = L.Power(pooled, scale=0)
    n[name] = L.Concat(pooled, n[f"{name}_zeros"])
    return n[name]


def body(n, data):
    top = B.norm_conv(
        n, "conv1", data, 16, 3, bn="bn_conv1", scale="scale_conv1", relu_name="conv1_relu", pad=1
    )
    for stage, width in ((2, 16), (3, 32), (4, 64)):
        for letter in "abc":
            block = f"{stage}{letter}"
            halves = letter == "a" and stage > 2
            shortcut = halved(n, block, top) if halves else top
            branch = conv(n, f"{block}_branch2a", top, width, True, stride=2 if halves else 1)
            branch = conv(n, f"{block}_branch2b", branch, width, False)
            n[f"res{block}"] = L.Eltwise(shortcut, branch)
            top = B.relu(n, f"res{block}_relu", n[f"res{block}"])
    return B.inner_product(n, "fc10", B.global_pool(n, "pool4", top), 10, weight_filler=dict(type="msra"))


def files():
    folder = "examples/cifar10/cifar10"
    data = (
        recipe.lmdb(f"{folder}_train_lmdb", 128, mirror=True, **TRANSFORM),
        recipe.lmdb(f"{folder}_test_lmdb", 100, **TRANSFORM),
    )
    return {
        "train_val.prototxt": recipe.classifier("ResNet-20", body, data),
        "deploy.prototxt": recipe.deploy("ResNet-20", body, [1, 3, 32, 32]),
        "solver.prototxt": recipe.solver(
            "resnet20_cifar",
            test_iter=100,
            test_interval=1000,
            base_lr=0.1,
            lr_policy="multistep",
            gamma=0.1,
            stepvalue=[32000, 48000],
            display=100,
            max_iter=64000,
            momentum=0.9,
            weight_decay=0.0001,
            snapshot=16000,
        ),
    }
