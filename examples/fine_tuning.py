"""Fine-tuning: what a net has learned of one task helps with another.

    python examples/fine_tuning.py

A net learns the digits 0 to 4. Then one with the same layers below and a new one above learns 5 to 9, from 20
pictures in 30 iterations: from those weights, with the layers below held fast, and from nothing. (On larger
data: examples/finetuning.)
"""

from __future__ import annotations

import numpy as np

import caffe
from caffe import layers as L
from caffe.proto import caffe_pb2
from caffe.resources import data_path


def digits() -> tuple[np.ndarray, np.ndarray]:
    with np.load(data_path("models", "digits", "digits.npz")) as data:
        return data["pixels"][:, None].astype(np.float32) / 16, data["labels"].astype(np.float32)


def net(batch_size: int, last: str, learn_below: bool = True) -> caffe_pb2.NetParameter:
    """last: the name of the last layer. Weights are copied by layer name, so a new name begins anew."""
    frozen = {} if learn_below else {"param": [{"lr_mult": 0}, {"lr_mult": 0}]}
    n = caffe.NetSpec()
    n.data, n.label = L.MemoryData(batch_size=batch_size, channels=1, height=8, width=8, ntop=2)
    n.conv1 = L.Convolution(
        n.data, num_output=16, kernel_size=3, pad=1, weight_filler={"type": "xavier"}, **frozen
    )
    n.relu1 = L.ReLU(n.conv1, in_place=True)
    n.pool1 = L.Pooling(n.relu1, kernel_size=2, stride=2)
    n.conv2 = L.Convolution(
        n.pool1, num_output=32, kernel_size=3, pad=1, weight_filler={"type": "xavier"}, **frozen
    )
    n.relu2 = L.ReLU(n.conv2, in_place=True)
    n.score = L.InnerProduct(n.relu2, num_output=5, name=last, weight_filler={"type": "xavier"})
    n.loss = L.SoftmaxWithLoss(n.score, n.label)
    return n.to_proto()


def train(
    definition: caffe_pb2.NetParameter, x: np.ndarray, y: np.ndarray, iterations: int, weights: str = ""
):
    recipe = caffe_pb2.SolverParameter(
        net_param=definition,
        base_lr=0.01,
        lr_policy="fixed",
        momentum=0.9,
        weight_decay=0.001,
        snapshot_prefix="fine_tuning",
        random_seed=1,
    )
    solver = caffe.get_solver(recipe)
    if weights:
        solver.net.copy_from(weights)
    solver.net.set_input_arrays(x, y)
    solver.step(iterations)
    return solver.net


def accuracy(trained: caffe.Net, x: np.ndarray, y: np.ndarray) -> float:
    trained.set_input_arrays(x, y)
    right = 0
    for _ in range(len(x) // trained.blobs["data"].shape[0]):
        trained.forward()
        right += (trained.blobs["score"].data.argmax(axis=1) == trained.blobs["label"].data.ravel()).sum()
    return right / len(x)


def main() -> tuple[float, float]:
    """Returns the accuracies on 5 to 9, fine-tuned and from scratch."""
    x, y = digits()
    low, high = y < 5, y >= 5
    train(net(50, "score_low"), x[low][:850], y[low][:850], 150).save("low.caffemodel")

    few, few_labels = x[high][:20], y[high][:20] - 5
    test, test_labels = x[high][-400:], y[high][-400:] - 5

    def result(weights: str, learn_below: bool = True) -> float:
        trained = train(net(10, "score_high", learn_below), few, few_labels, 30, weights)
        return accuracy(trained, test, test_labels)

    tuned, fixed, scratch = result("low.caffemodel"), result("low.caffemodel", learn_below=False), result("")
    print(f"accuracy: fine-tuned {tuned:.3f}, layers below held fast {fixed:.3f}, from scratch {scratch:.3f}")
    return tuned, scratch


if __name__ == "__main__":
    main()
