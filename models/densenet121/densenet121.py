"""DenseNet-121: each layer sees all before it; ImageNet (Huang, Liu, van der Maaten, Weinberger, 2016)."""

from common import layers as B
from common import recipe

from caffe import layers as L
from caffe import params as P

GROWTH = 32
DEPTHS = (6, 12, 24, 16)


def normed(n, name, bottom, relu_name):
    """BatchNorm, Scale and ReLU in front of the convolution `name`."""
    return B.norm(n, bottom, f"{name}/bn", f"{name}/scale", relu_name, in_place=False)


def conv(n, name, bottom, num_output, kernel, relu_name, **more):
    n[name] = L.Convolution(
        normed(n, name, bottom, relu_name),
        num_output=num_output,
        kernel_size=kernel,
        bias_term=False,
        param=B.WEIGHTS,
        weight_filler=dict(type="msra"),
        **more,
    )
    return n[name]


def body(n, data):
    top = B.norm_conv(
        n,
        "conv1",
        data,
        64,
        7,
        bn="conv1/bn",
        scale="conv1/scale",
        relu_name="relu1",
        in_place=False,
        pad=3,
        stride=2,
    )
    top = B.max_pool(n, "pool1", top, 3, 2, pad=1, round_mode=P.Pooling.FLOOR)
    width = 64
    for stage, depth in enumerate(DEPTHS, 2):
        for index in range(1, depth + 1):
            name = f"{stage}_{index}"
            new = conv(n, f"conv{name}/x1", top, 4 * GROWTH, 1, f"relu{name}/x1")
            new = conv(n, f"conv{name}/x2", new, GROWTH, 3, f"relu{name}/x2", pad=1)
            n[f"concat_{name}"] = L.Concat(top, new)
            top, width = n[f"concat_{name}"], width + GROWTH
        if stage < 5:
            width //= 2
            top = conv(n, f"conv{stage}_blk", top, width, 1, f"relu{stage}_blk")
            top = B.ave_pool(n, f"pool{stage}", top, 2, 2)
    top = B.global_pool(n, "pool5", normed(n, "conv5_blk", top, "relu5_blk"))
    return B.conv(n, "fc6", top, 1000, 1, weight_filler=dict(type="msra"))


def files():
    data = recipe.imagenet(224, 32, 25, mean_value=[103.94, 116.78, 123.68], scale=0.017)
    return {
        "train_val.prototxt": recipe.classifier("DENSENET_121", body, data, top_5=True),
        "deploy.prototxt": recipe.deploy("DENSENET_121", body, [1, 3, 224, 224]),
        # The paper's batch of 256, 90 passes over 1.28 million images.
        "solver.prototxt": recipe.solver(
            "densenet121",
            test_iter=2000,
            test_interval=5000,
            test_initialization=False,
            base_lr=0.1,
            lr_policy="multistep",
            gamma=0.1,
            stepvalue=[150000, 300000],
            display=20,
            max_iter=450000,
            iter_size=8,
            momentum=0.9,
            weight_decay=0.0001,
            snapshot=10000,
        ),
    }
