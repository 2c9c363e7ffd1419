"""GoogLeNet: 22 layers of inception modules, 1,000 classes of ImageNet (Szegedy and others, 2014)."""

from common import layers as B
from common import recipe

from caffe import NetSpec
from caffe import layers as L

# Of each module: 1x1, then 3x3 reduced and full, 5x5 reduced and full, and behind the pooling.
MODULES = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


def conv(n, prefix, name, bottom, num_output, kernel, **more):
    """With the initial bias of 0.2 that keeps the rectifiers open at first."""
    more = dict(bias_filler=B.constant(0.2), **more)
    return B.conv_relu(n, f"{prefix}/{name}", f"{prefix}/relu_{name}", bottom, num_output, kernel, **more)


def inception(n, module, bottom):
    prefix = f"inception_{module}"
    one, three_reduce, three, five_reduce, five, projection = MODULES[module]
    branch1 = conv(n, prefix, "1x1", bottom, one, 1)
    reduced = conv(n, prefix, "3x3_reduce", bottom, three_reduce, 1)
    branch3 = conv(n, prefix, "3x3", reduced, three, 3, pad=1)
    reduced = conv(n, prefix, "5x5_reduce", bottom, five_reduce, 1)
    branch5 = conv(n, prefix, "5x5", reduced, five, 5, pad=2)
    pooled = B.max_pool(n, f"{prefix}/pool", bottom, 3, 1, pad=1)
    branch_pool = conv(n, prefix, "pool_proj", pooled, projection, 1)
    n[f"{prefix}/output"] = L.Concat(branch1, branch3, branch5, branch_pool)
    return n[f"{prefix}/output"]


def body(n, data, branch=lambda index, top: None):
    """branch(1 or 2, top) is called where a classifier may branch off."""
    top = conv(n, "conv1", "7x7_s2", data, 64, 7, stride=2, pad=3)
    top = B.max_pool(n, "pool1/3x3_s2", top, 3, 2)
    n["pool1/norm1"] = L.LRN(top, local_size=5, alpha=1e-4, beta=0.75)
    top = conv(n, "conv2", "3x3_reduce", n["pool1/norm1"], 64, 1)
    top = conv(n, "conv2", "3x3", top, 192, 3, pad=1)
    n["conv2/norm2"] = L.LRN(top, local_size=5, alpha=1e-4, beta=0.75)
    top = B.max_pool(n, "pool2/3x3_s2", n["conv2/norm2"], 3, 2)
    for module in MODULES:
        if module in ("4a", "5a"):
            top = B.max_pool(n, f"pool{int(module[0]) - 1}/3x3_s2", top, 3, 2)
        top = inception(n, module, top)
        if module in ("4a", "4d"):
            branch(1 if module == "4a" else 2, top)
    top = B.ave_pool(n, "pool5/7x7_s1", top, 7, 1)
    n["pool5/drop_7x7_s1"] = L.Dropout(top, dropout_ratio=0.4, in_place=True)
    return B.inner_product(n, "loss3/classifier", n["pool5/drop_7x7_s1"], 1000)


def auxiliary(n, index, bottom):
    """The scores of a small classifier in the middle, whose gradient helps the layers below."""
    prefix = f"loss{index}"
    top = B.ave_pool(n, f"{prefix}/ave_pool", bottom, 5, 3)
    top = conv(n, prefix, "conv", top, 128, 1)
    top = B.inner_product(n, f"{prefix}/fc", top, 1024, bias_filler=B.constant(0.2))
    top = B.relu(n, f"{prefix}/relu_fc", top)
    n[f"{prefix}/drop_fc"] = L.Dropout(top, dropout_ratio=0.7, in_place=True)
    return B.inner_product(n, f"{prefix}/classifier", n[f"{prefix}/drop_fc"], 1000)


def judge(n, index, scores, weight):
    """Loss and accuracies; the layers' names differ from those of their tops, as in the public model."""
    n[f"loss{index}/loss{index}"] = L.SoftmaxWithLoss(
        scores, n.label, name=f"loss{index}/loss", loss_weight=weight
    )
    for k in (1, 5):
        n[f"loss{index}/top-{k}"] = L.Accuracy(
            scores, n.label, include=recipe.TEST, accuracy_param=dict(top_k=k)
        )


def train_val():
    train, test = recipe.imagenet(224, 32, 50)
    n = NetSpec()
    n.data, n.label = L.Data(ntop=2, name="data", include=recipe.TRAIN, **train)
    top = body(n, n.data, lambda index, top: judge(n, index, auxiliary(n, index, top), 0.3))
    judge(n, 3, top, 1)
    return recipe.with_test_data("GoogleNet", n, test)


def files():
    return {
        "train_val.prototxt": train_val(),
        "deploy.prototxt": recipe.deploy("GoogleNet", body, [10, 3, 224, 224]),
        # 60 passes over 1.28 million images; the rate falls to zero as a square root.
        "solver.prototxt": recipe.solver(
            "bvlc_googlenet",
            test_iter=1000,
            test_interval=4000,
            test_initialization=False,
            base_lr=0.01,
            lr_policy="poly",
            power=0.5,
            display=40,
            average_loss=40,
            max_iter=2400000,
            momentum=0.9,
            weight_decay=0.0002,
            snapshot=40000,
        ),
    }
