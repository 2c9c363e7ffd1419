"""Siamese: two copies of one net learn to put equal digits near each other.

    python examples/siamese.py

Parameters with a name of their own are one parameter, wherever they stand; ContrastiveLoss pulls pairs of one
digit together and pushes others apart. (The whole of MNIST: `caffe data mnist-siamese`.)
"""

from __future__ import annotations

import numpy as np

import caffe
from caffe import layers as L
from caffe.proto import caffe_pb2
from caffe.resources import data_path


def branch(n: caffe.NetSpec, pixels, suffix: str):
    """One side; the names of its parameters are the same on both."""

    def shared(name: str) -> list[dict]:
        return [{"name": f"{name}_w", "lr_mult": 1}, {"name": f"{name}_b", "lr_mult": 2}]

    conv = L.Convolution(
        pixels, num_output=16, kernel_size=3, pad=1, param=shared("conv"), weight_filler={"type": "xavier"}
    )
    pool = L.Pooling(L.ReLU(conv, in_place=True), kernel_size=2, stride=2)
    ip = L.InnerProduct(pool, num_output=64, param=shared("ip"), weight_filler={"type": "xavier"})
    feat = L.InnerProduct(
        L.ReLU(ip, in_place=True), num_output=2, param=shared("feat"), weight_filler={"type": "xavier"}
    )
    n[f"feat{suffix}"] = feat
    return feat


def siamese(batch_size: int) -> caffe_pb2.NetParameter:
    n = caffe.NetSpec()
    n.pair_data, n.sim = L.MemoryData(batch_size=batch_size, channels=2, height=8, width=8, ntop=2)
    n.data, n.data_p = L.Slice(n.pair_data, slice_dim=1, slice_point=1, ntop=2)
    left, right = branch(n, n.data, ""), branch(n, n.data_p, "_p")
    n.loss = L.ContrastiveLoss(left, right, n.sim, margin=1)
    return n.to_proto()


def pairs(pixels: np.ndarray, labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Random pairs (N, 2, 8, 8), half of them of one digit; and 1 for those, 0 for others."""
    draw = np.random.default_rng(1)
    first = draw.integers(0, len(labels), count)
    second = draw.integers(0, len(labels), count)
    for k in range(0, count, 2):
        second[k] = draw.choice(np.flatnonzero(labels == labels[first[k]]))
    return np.stack([pixels[first], pixels[second]], 1), (labels[first] == labels[second]).astype(np.float32)


def main(iterations: int = 600) -> float:
    """Returns the share of unseen pairs on whose right side of half the margin their distance lies."""
    with np.load(data_path("models", "digits", "digits.npz")) as data:
        pixels, labels = data["pixels"].astype(np.float32) / 16, data["labels"]
    recipe = caffe_pb2.SolverParameter(
        net_param=siamese(100),
        base_lr=0.02,
        lr_policy="inv",
        gamma=0.001,
        power=0.75,
        momentum=0.9,
        snapshot_prefix="siamese",
        random_seed=1,
    )
    solver = caffe.get_solver(recipe)
    net = solver.net
    print(
        "parameters that are one:",
        net.params["Convolution1"][0].data_mem is net.params["Convolution2"][0].data_mem,
    )
    net.set_input_arrays(*pairs(pixels[:1500], labels[:1500], 10000))
    for _ in range(4):
        solver.step(iterations // 4)
        print(f"iteration {solver.iter}: loss {solver.smoothed_loss:.4f}")

    unseen, same = pairs(pixels[1500:], labels[1500:], 1000)
    net.set_input_arrays(unseen, same)
    distances = []
    for _ in range(10):
        net.forward()
        distances.append(np.linalg.norm(net.blobs["feat"].data - net.blobs["feat_p"].data, axis=1))
    near = np.concatenate(distances) < 0.5
    right = float((near == (same == 1)).mean())
    print(f"pairs told apart: {right:.1%}")
    return right


if __name__ == "__main__":
    main()
