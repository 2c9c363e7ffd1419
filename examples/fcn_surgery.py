"""FCN surgery: a classifier becomes a net that labels every pixel.

    python examples/fcn_surgery.py

Its inner products become convolutions (examples/net_surgery.py), a Deconvolution of bilinear weights brings
scores back to the size of the picture, and `crop` cuts them so that they lie over it, whatever the layers
between shifted. Then the whole is trained on pictures of digits on a dark ground.
"""

from __future__ import annotations

import numpy as np

import caffe
from caffe import layers as L
from caffe.coord_map import crop
from caffe.proto import caffe_pb2
from caffe.resources import data_path

SIZE = 48


def fcn(batch_size: int) -> caffe_pb2.NetParameter:
    n = caffe.NetSpec()
    n.data = L.Input(shape={"dim": [batch_size, 1, SIZE, SIZE]})
    n.label = L.Input(shape={"dim": [batch_size, 1, SIZE, SIZE]})
    # Padding as FCNs have it: large at first, so that even the last kernel has something to see.
    n.conv1 = L.Convolution(n.data, num_output=16, kernel_size=3, pad=9, weight_filler={"type": "xavier"})
    n.relu1 = L.ReLU(n.conv1, in_place=True)
    n.conv2 = L.Convolution(n.relu1, num_output=32, kernel_size=3, pad=1, weight_filler={"type": "xavier"})
    n.relu2 = L.ReLU(n.conv2, in_place=True)
    n.pool2 = L.Pooling(n.relu2, kernel_size=2, stride=2)
    n.fc = L.Convolution(n.pool2, num_output=64, kernel_size=4, weight_filler={"type": "xavier"})
    n.relu3 = L.ReLU(n.fc, in_place=True)
    n.score = L.Convolution(n.relu3, num_output=3, kernel_size=1, weight_filler={"type": "xavier"})
    n.upscore = L.Deconvolution(
        n.score,
        param={"lr_mult": 0},  # bilinear interpolation, and it stays so
        convolution_param={
            "num_output": 3,
            "group": 3,
            "kernel_size": 4,
            "stride": 2,
            "bias_term": False,
            "weight_filler": {"type": "bilinear"},
        },
    )
    n.pixels = crop(n.upscore, n.data)
    n.loss = L.SoftmaxWithLoss(n.pixels, n.label, loss_param={"ignore_label": 255})
    return n.to_proto()


def pictures(count: int, seed: int, rows: slice) -> tuple[np.ndarray, np.ndarray]:
    """Digits at random places; of each pixel the label: 0 ground, 1 of a 0, 2 of a 1. Their rims are 255."""
    draw = np.random.default_rng(seed)
    with np.load(data_path("models", "digits", "digits.npz")) as data:
        chosen = data["labels"][rows] < 2
        digits, kinds = data["pixels"][rows][chosen].astype(np.float32) / 16, data["labels"][rows][chosen]
    x, y = np.zeros((2, count, 1, SIZE, SIZE), np.float32)
    for k in range(count):
        for _ in range(6):
            i, top, left = draw.integers(0, len(kinds)), *draw.integers(0, SIZE - 8, 2)
            if y[k, 0, top : top + 8, left : left + 8].any():
                continue
            x[k, 0, top : top + 8, left : left + 8] = digits[i]
            ink = digits[i]
            y[k, 0, top : top + 8, left : left + 8] = np.where(
                ink > 0.5, kinds[i] + 1, np.where(ink > 0.1, 255, 0)
            )
    return x, y


def main(iterations: int = 150) -> tuple[float, float]:
    """Returns the mean over classes of the share of pixels that are labelled right, before and after."""
    recipe = caffe_pb2.SolverParameter(
        net_param=fcn(8),
        type="Adam",
        base_lr=0.003,
        momentum=0.9,
        lr_policy="fixed",
        snapshot_prefix="fcn",
        random_seed=1,
    )
    solver = caffe.get_solver(recipe)
    net = solver.net
    layer = net.layer_dict["pixels"].layer_param
    print(
        f"upscore {net.blobs['upscore'].data.shape} is cropped by {list(layer.crop_param.offset)} to {SIZE}"
    )

    def accuracy() -> float:
        x, y = pictures(8, 99, slice(1500, None))
        net.forward(data=x, label=y)
        best, labels = net.blobs["pixels"].data.argmax(axis=1), y[:, 0]
        return float(np.mean([(best[labels == c] == c).mean() for c in range(3)]))

    before = accuracy()
    x, y = pictures(64, 0, slice(0, 1500))
    for k in range(iterations):
        rows = np.arange(8) + 8 * k
        net.blobs["data"].data[...] = x[rows % 64]
        net.blobs["label"].data[...] = y[rows % 64]
        solver.step(1)
    after = accuracy()
    print(
        f"pixels labelled right, mean over classes: {before:.3f}, after {iterations} iterations {after:.3f}"
    )
    return before, after


if __name__ == "__main__":
    main()
