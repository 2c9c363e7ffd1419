"""Logistic regression on vectors in HDF5 files: two classes, four numbers each."""

from common import layers as B
from common import recipe

from caffe import NetSpec
from caffe import layers as L


def body(n, data):
    return B.inner_product(n, "fc1", data, 2)


def rows(part):
    return dict(hdf5_data_param=dict(source=f"examples/logistic_regression/{part}.txt", batch_size=10))


def train_val():
    n = NetSpec()
    n.data, n.label = L.HDF5Data(ntop=2, include=recipe.TRAIN, **rows("train"))
    scores = body(n, n.data)
    n.accuracy = L.Accuracy(scores, n.label, include=recipe.TEST)
    n.loss = L.SoftmaxWithLoss(scores, n.label)
    return recipe.with_test_data("LogisticRegressionNet", n, rows("test"))


def files():
    return {
        "train_val.prototxt": train_val(),
        "deploy.prototxt": recipe.deploy("LogisticRegressionNet", body, [1, 4]),
        "solver.prototxt": recipe.solver(
            "logistic_regression",
            test_iter=250,
            test_interval=1000,
            base_lr=0.01,
            lr_policy="step",
            gamma=0.1,
            stepsize=5000,
            display=1000,
            max_iter=10000,
            momentum=0.9,
            weight_decay=0.0005,
            snapshot=10000,
        ),
    }
