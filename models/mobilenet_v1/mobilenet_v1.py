"""MobileNet: depthwise separable convolutions; 1,000 classes of ImageNet (Howard and others, 2017)."""

from common import layers as B
from common import recipe

# Name, channels that come in, channels that go out, stride.
BLOCKS = (
    ("2_1", 32, 64, 1),
    ("2_2", 64, 128, 2),
    ("3_1", 128, 128, 1),
    ("3_2", 128, 256, 2),
    ("4_1", 256, 256, 1),
    ("4_2", 256, 512, 2),
    ("5_1", 512, 512, 1),
    ("5_2", 512, 512, 1),
    ("5_3", 512, 512, 1),
    ("5_4", 512, 512, 1),
    ("5_5", 512, 512, 1),
    ("5_6", 512, 1024, 2),
    ("6", 1024, 1024, 1),
)


def conv(n, name, bottom, num_output, kernel, **more):
    names = dict(bn=f"{name}/bn", scale=f"{name}/scale", relu_name=name.replace("conv", "relu"))
    return B.norm_conv(n, name, bottom, num_output, kernel, **names, **more)


def body(n, data):
    top = conv(n, "conv1", data, 32, 3, pad=1, stride=2)
    for name, before, after, stride in BLOCKS:
        top = conv(n, f"conv{name}/dw", top, before, 3, pad=1, stride=stride, group=before)
        top = conv(n, f"conv{name}/sep", top, after, 1)
    return B.conv(n, "fc7", B.global_pool(n, "pool6", top), 1000, 1, weight_filler=dict(type="msra"))


def files():
    data = recipe.imagenet(224, 64, 50, mean_value=[103.94, 116.78, 123.68], scale=0.017)
    return {
        "train_val.prototxt": recipe.classifier("MOBILENET", body, data, top_5=True),
        "deploy.prototxt": recipe.deploy("MOBILENET", body, [1, 3, 224, 224]),
        "solver.prototxt": recipe.solver(
            "mobilenet_v1",
            test_iter=1000,
            test_interval=5000,
            test_initialization=False,
            base_lr=0.1,
            lr_policy="poly",
            power=1,
            display=20,
            max_iter=500000,
            iter_size=4,
            momentum=0.9,
            weight_decay=0.00004,
            snapshot=10000,
        ),
    }
