"""Learning LeNet, step by step: a net in Python, a solver in hand, and a look at all that happens.

    python examples/learning_lenet.py

Writes the prototxts with NetSpec, takes the first steps one by one, and then trains with a loop of its own
that tests now and then. (MNIST instead: `caffe data mnist .`, then main(train="mnist_train_lmdb",
test="mnist_test_lmdb", iterations=500).)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import caffe
from caffe import layers as L
from caffe import params as P


def lenet(source: str, batch_size: int) -> caffe.NetSpec:
    n = caffe.NetSpec()
    n.data, n.label = L.Data(
        batch_size=batch_size, backend=P.Data.LMDB, source=source, transform_param={"scale": 1 / 255}, ntop=2
    )
    n.conv1 = L.Convolution(n.data, kernel_size=3, pad=1, num_output=20, weight_filler={"type": "xavier"})
    n.relu1 = L.ReLU(n.conv1, in_place=True)
    n.pool1 = L.Pooling(n.relu1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.conv2 = L.Convolution(n.pool1, kernel_size=3, pad=1, num_output=50, weight_filler={"type": "xavier"})
    n.relu2 = L.ReLU(n.conv2, in_place=True)
    n.pool2 = L.Pooling(n.relu2, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.fc1 = L.InnerProduct(n.pool2, num_output=100, weight_filler={"type": "xavier"})
    n.relu3 = L.ReLU(n.fc1, in_place=True)
    n.score = L.InnerProduct(n.relu3, num_output=10, weight_filler={"type": "xavier"})
    n.loss = L.SoftmaxWithLoss(n.score, n.label)
    return n


SOLVER = """
train_net: "lenet_train.prototxt"
test_net: "lenet_test.prototxt"
test_iter: 3
test_interval: 1000000  # we test by hand
base_lr: 0.02
lr_policy: "inv"
gamma: 0.0001
power: 0.75
momentum: 0.9
weight_decay: 0.0005
snapshot_prefix: "lenet"
random_seed: 1
"""


def main(
    train: str = "dataset://digits/train", test: str = "dataset://digits/test", iterations: int = 200
) -> list[float]:
    """Returns the test accuracies on the way."""
    Path("lenet_train.prototxt").write_text(str(lenet(train, 64).to_proto()))
    Path("lenet_test.prototxt").write_text(str(lenet(test, 99).to_proto()))
    Path("lenet_solver.prototxt").write_text(SOLVER)
    solver = caffe.SGDSolver("lenet_solver.prototxt")

    print("blobs:", [(name, blob.data.shape) for name, blob in solver.net.blobs.items()])
    print("weights:", [(name, blobs[0].data.shape) for name, blobs in solver.net.params.items()])

    # One pass of the train net and one of the test net: is there data, and do labels belong to it?
    print("loss before training:", solver.net.forward()["loss"])
    solver.test_nets[0].forward()
    print("first labels:", solver.test_nets[0].blobs["label"].data[:8])

    # One step: the first layer's weights have moved against their gradients.
    solver.step(1)
    print("gradients of conv1, from", solver.net.params["conv1"][0].diff.min())

    losses, accuracies, every = [], [], 25
    for k in range(iterations):
        solver.step(1)
        losses.append(float(solver.net.blobs["loss"].data))
        if k % every == 0 or k == iterations - 1:
            right = total = 0
            test_net = solver.test_nets[0]
            for _ in range(3):
                test_net.forward()
                right += (test_net.blobs["score"].data.argmax(axis=1) == test_net.blobs["label"].data).sum()
                total += len(test_net.blobs["label"].data)
            accuracies.append(right / total)
            print(f"iteration {solver.iter}: loss {losses[-1]:.3f}, test accuracy {accuracies[-1]:.3f}")
    np.save("losses.npy", losses)
    return accuracies


if __name__ == "__main__":
    main()
