"""A data layer in Python: several labels for each image, put together by code of one's own.

    python examples/python_data_layer.py

Each picture shows two digits side by side, and has ten labels: is there a 0, is there a 1, ...? Nothing but a
Python layer is needed to make such data on the fly.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import caffe
from caffe import layers as L
from caffe.proto import caffe_pb2
from caffe.resources import data_path


class TwoDigits(caffe.Layer):
    """tops: images (N, 1, 8, 16) and labels (N, 10) in {0, 1}. param_str: JSON with batch_size and part."""

    def setup(self, bottom, top):
        options = json.loads(self.param_str)
        self.batch_size = options["batch_size"]
        rows = slice(0, 1500) if options["part"] == "train" else slice(1500, None)
        with np.load(data_path("models", "digits", "digits.npz")) as data:
            self.pixels, self.labels = data["pixels"][rows].astype(np.float32) / 16, data["labels"][rows]
        self.draw = np.random.default_rng(0)

    def reshape(self, bottom, top):
        top[0].reshape(self.batch_size, 1, 8, 16)
        top[1].reshape(self.batch_size, 10)

    def forward(self, bottom, top):
        chosen = self.draw.integers(0, len(self.labels), (self.batch_size, 2))
        top[0].data[:, 0] = np.concatenate([self.pixels[chosen[:, 0]], self.pixels[chosen[:, 1]]], axis=2)
        top[1].data[...] = 0
        for side in range(2):
            top[1].data[np.arange(self.batch_size), self.labels[chosen[:, side]]] = 1

    def backward(self, top, propagate_down, bottom):
        pass


def net(part: str, batch_size: int) -> caffe_pb2.NetParameter:
    n = caffe.NetSpec()
    options = json.dumps({"part": part, "batch_size": batch_size})
    # The module is this file; whoever runs such a net runs its code.
    n.data, n.label = L.Python(module=Path(__file__).stem, layer="TwoDigits", param_str=options, ntop=2)
    n.conv = L.Convolution(n.data, num_output=20, kernel_size=3, pad=1, weight_filler={"type": "xavier"})
    n.relu = L.ReLU(n.conv, in_place=True)
    n.pool = L.Pooling(n.relu, kernel_size=2, stride=2)
    n.fc = L.InnerProduct(n.pool, num_output=100, weight_filler={"type": "xavier"})
    n.relu_fc = L.ReLU(n.fc, in_place=True)
    n.score = L.InnerProduct(n.relu_fc, num_output=10, weight_filler={"type": "xavier"})
    n.loss = L.SigmoidCrossEntropyLoss(n.score, n.label)
    return n.to_proto()


def hamming_accuracy(test: caffe.Net, batches: int) -> float:
    """The share of labels that are right."""
    right = 0.0
    for _ in range(batches):
        test.forward()
        right += ((test.blobs["score"].data > 0) == (test.blobs["label"].data > 0.5)).mean()
    return right / batches


def main(iterations: int = 300) -> tuple[float, float]:
    """Returns the accuracy before and after training. Always answering "no" would be right to 81 %."""
    sys.path.insert(0, str(Path(__file__).parent))
    recipe = caffe_pb2.SolverParameter(
        train_net_param=net("train", 50),
        test_net_param=[net("test", 100)],
        test_iter=[5],
        test_interval=1000000,
        base_lr=0.02,
        lr_policy="fixed",
        momentum=0.9,
        snapshot_prefix="two_digits",
        random_seed=1,
    )
    solver = caffe.get_solver(recipe)
    solver.test_nets[0].share_with(solver.net)
    before = hamming_accuracy(solver.test_nets[0], 5)
    for _ in range(3):
        solver.step(iterations // 3)
        after = hamming_accuracy(solver.test_nets[0], 5)
        print(f"iteration {solver.iter}: accuracy {after:.3f} (before training: {before:.3f})")
    return before, after


if __name__ == "__main__":
    main()
