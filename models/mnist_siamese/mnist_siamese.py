"""A siamese net on pairs of MNIST: a plane where equal digits lie together (Hadsell and others, 2006)."""

from common import layers as B
from common import recipe

from caffe import NetSpec
from caffe import layers as L


def branch(n, data, suffix=""):
    """One of the two equal halves; parameters of one name are one parameter."""

    def shared(name):
        return [dict(name=f"{name}_w", lr_mult=1), dict(name=f"{name}_b", lr_mult=2)]

    top = data
    for index, width in ((1, 20), (2, 50)):
        top = B.conv(n, f"conv{index}{suffix}", top, width, 5, param=shared(f"conv{index}"))
        top = B.max_pool(n, f"pool{index}{suffix}", top, 2, 2)
    top = B.inner_product(n, f"ip1{suffix}", top, 500, param=shared("ip1"))
    top = B.relu(n, f"relu1{suffix}", top)
    top = B.inner_product(n, f"ip2{suffix}", top, 10, param=shared("ip2"))
    return B.inner_product(n, f"feat{suffix}", top, 2, param=shared("feat"))


def train_val():
    folder, pixels = "examples/siamese/mnist_siamese", dict(scale=0.00390625)
    n = NetSpec()
    n.pair_data, n.sim = L.Data(
        ntop=2, include=recipe.TRAIN, **recipe.lmdb(f"{folder}_train_lmdb", 64, **pixels)
    )
    n.data, n.data_p = L.Slice(n.pair_data, ntop=2, name="slice_pair", axis=1, slice_point=1)
    n.loss = L.ContrastiveLoss(
        branch(n, n.data), branch(n, n.data_p, "_p"), n.sim, contrastive_loss_param=dict(margin=1)
    )
    test = recipe.lmdb(f"{folder}_test_lmdb", 100, **pixels)
    return recipe.with_test_data("mnist_siamese_train_test", n, test)


def files():
    return {
        "train_val.prototxt": train_val(),
        "deploy.prototxt": recipe.deploy("mnist_siamese", branch, [1, 1, 28, 28], output=""),
        "solver.prototxt": recipe.solver(
            "mnist_siamese",
            test_iter=100,
            test_interval=500,
            base_lr=0.01,
            lr_policy="inv",
            gamma=0.0001,
            power=0.75,
            display=100,
            max_iter=50000,
            momentum=0.9,
            weight_decay=0,
            snapshot=5000,
        ),
    }
