"""Logistic regression on HDF5: any table of numbers is data for a net.

    python examples/logistic_regression.py

Two classes that a straight line separates badly: a net of one InnerProduct is logistic regression; one more
layer with a ReLU bends the line.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

import caffe
from caffe import layers as L


def write_data(count: int = 2000) -> None:
    """Points of four numbers, of which two matter: class 1 lies within a ring."""
    draw = np.random.default_rng(0)
    x = draw.uniform(-1, 1, (count, 4)).astype(np.float32)
    y = (np.hypot(x[:, 0], x[:, 1]) + 0.05 * draw.standard_normal(count) < 0.75).astype(np.float32)
    for part, rows in (("train", slice(0, count * 3 // 4)), ("test", slice(count * 3 // 4, count))):
        with h5py.File(f"{part}.h5", "w") as file:
            # Compressed, and several files would do as well; a list file names them.
            file.create_dataset("data", data=x[rows], compression="gzip")
            file.create_dataset("label", data=y[rows], compression="gzip")
        Path(f"{part}.txt").write_text(f"{part}.h5\n")


def logistic_regression(part: str, batch_size: int) -> caffe.NetSpec:
    n = caffe.NetSpec()
    n.data, n.label = L.HDF5Data(batch_size=batch_size, source=f"{part}.txt", ntop=2)
    n.score = L.InnerProduct(n.data, num_output=2, weight_filler={"type": "xavier"})
    n.accuracy = L.Accuracy(n.score, n.label)
    n.loss = L.SoftmaxWithLoss(n.score, n.label)
    return n


def with_hidden_layer(part: str, batch_size: int) -> caffe.NetSpec:
    n = caffe.NetSpec()
    n.data, n.label = L.HDF5Data(batch_size=batch_size, source=f"{part}.txt", ntop=2)
    n.hidden = L.InnerProduct(n.data, num_output=40, weight_filler={"type": "xavier"})
    n.relu = L.ReLU(n.hidden, in_place=True)
    n.score = L.InnerProduct(n.relu, num_output=2, weight_filler={"type": "xavier"})
    n.accuracy = L.Accuracy(n.score, n.label)
    n.loss = L.SoftmaxWithLoss(n.score, n.label)
    return n


SOLVER = """
train_net: "train.prototxt"
test_net: "test.prototxt"
test_iter: 10
test_interval: 1000000
base_lr: 0.05
lr_policy: "step"
gamma: 0.1
stepsize: 600
momentum: 0.9
weight_decay: 0.0005
snapshot_prefix: "logistic"
random_seed: 1
"""


def accuracy(build, iterations: int) -> float:
    Path("train.prototxt").write_text(str(build("train", 50).to_proto()))
    Path("test.prototxt").write_text(str(build("test", 50).to_proto()))
    Path("solver.prototxt").write_text(SOLVER)
    solver = caffe.get_solver("solver.prototxt")
    solver.step(iterations)
    return float(solver.test()["accuracy"])


def main(iterations: int = 800) -> tuple[float, float]:
    """Returns the test accuracies of both nets."""
    write_data()
    straight = accuracy(logistic_regression, iterations)
    bent = accuracy(with_hidden_layer, iterations)
    print(f"accuracy of logistic regression: {straight:.3f}; with a hidden layer: {bent:.3f}")
    return straight, bent


if __name__ == "__main__":
    main()
