"""MobileNet v2: inverted residuals, linear bottlenecks; ImageNet (Sandler and others, 2018)."""

from common import layers as B
from common import recipe

from caffe import layers as L

# Name, expansion, channels that go out, stride.
BLOCKS = (
    ("2_1", 1, 16, 1),
    ("2_2", 6, 24, 2),
    ("3_1", 6, 24, 1),
    ("3_2", 6, 32, 2),
    ("4_1", 6, 32, 1),
    ("4_2", 6, 32, 1),
    ("4_3", 6, 64, 1),
    ("4_4", 6, 64, 1),
    ("4_5", 6, 64, 1),
    ("4_6", 6, 64, 1),
    ("4_7", 6, 96, 2),
    ("5_1", 6, 96, 1),
    ("5_2", 6, 96, 1),
    ("5_3", 6, 160, 2),
    ("6_1", 6, 160, 1),
    ("6_2", 6, 160, 1),
    ("6_3", 6, 320, 1),
)


def conv(n, name, bottom, num_output, kernel, relu_name, **more):
    names = dict(bn=f"{name}/bn", scale=f"{name}/scale", relu_name=relu_name)
    return B.norm_conv(n, name, bottom, num_output, kernel, in_place=False, **names, **more)


def body(n, data):
    top, width = conv(n, "conv1", data, 32, 3, "relu1", pad=1, stride=2), 32
    for name, expansion, num_output, stride in BLOCKS:
        inner = expansion * width
        branch = conv(n, f"conv{name}/expand", top, inner, 1, f"relu{name}/expand")
        depthwise = dict(pad=1, stride=stride, group=inner)
        branch = conv(n, f"conv{name}/dwise", branch, inner, 3, f"relu{name}/dwise", **depthwise)
        branch = conv(n, f"conv{name}/linear", branch, num_output, 1, None)
        if num_output == width and stride == 1:
            n[f"block_{name}"] = L.Eltwise(top, branch)
            branch = n[f"block_{name}"]
        top, width = branch, num_output
    top = B.global_pool(n, "pool6", conv(n, "conv6_4", top, 1280, 1, "relu6_4"))
    return B.conv(n, "fc7", top, 1000, 1, weight_filler=dict(type="msra"))


def files():
    data = recipe.imagenet(224, 32, 50, mean_value=[103.94, 116.78, 123.68], scale=0.017)
    return {
        "train_val.prototxt": recipe.classifier("MOBILENET_V2", body, data, top_5=True),
        "deploy.prototxt": recipe.deploy("MOBILENET_V2", body, [1, 3, 224, 224]),
        "solver.prototxt": recipe.solver(
            "mobilenet_v2",
            test_iter=1000,
            test_interval=5000,
            test_initialization=False,
            base_lr=0.1,
            lr_policy="poly",
            power=1,
            display=20,
            max_iter=750000,
            iter_size=8,
            momentum=0.9,
            weight_decay=0.00004,
            snapshot=10000,
        ),
    }
