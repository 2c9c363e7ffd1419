"""Net surgery: parameters are arrays, and whoever changes them changes the net.

    python examples/net_surgery.py

First a filter written by hand. Then the trained digits classifier becomes fully convolutional: its inner
products are convolutions whose kernels are as large as what they see, so that the same weights, reshaped,
classify every place of a larger picture in one pass.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import caffe
from caffe.resources import data_path

MODEL = data_path("models", "digits")

FILTER = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 30 dim: 30 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 2 kernel_size: 3 weight_filler { type: "gaussian" std: 0.01 } } }
"""

# As models/digits/deploy.prototxt, but for ip1 (of 4 x 4 places after pooling) and ip2.
FULLY_CONVOLUTIONAL = """
name: "digits, everywhere"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 8 dim: 40 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
        convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "conv2" type: "Convolution" bottom: "conv1" top: "conv2"
        convolution_param { num_output: 32 kernel_size: 3 pad: 1 } }
layer { name: "relu2" type: "ReLU" bottom: "conv2" top: "conv2" }
layer { name: "pool2" type: "Pooling" bottom: "conv2" top: "pool2"
        pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "ip1_conv" type: "Convolution" bottom: "pool2" top: "ip1"
        convolution_param { num_output: 64 kernel_size: 4 } }
layer { name: "relu3" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "ip2_conv" type: "Convolution" bottom: "ip1" top: "ip2"
        convolution_param { num_output: 10 kernel_size: 1 } }
layer { name: "prob" type: "Softmax" bottom: "ip2" top: "prob" }
"""


def filter_by_hand() -> None:
    Path("filter.prototxt").write_text(FILTER)
    net = caffe.Net("filter.prototxt", caffe.TEST)
    weights, bias = (blob.data for blob in net.params["conv"])
    weights[0] = 1 / 9  # a mean
    weights[1] = [[[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]]]  # an edge from left to right
    bias[...] = 0
    picture = np.zeros((30, 30), np.float32)
    picture[:, 15:] = 1
    net.blobs["data"].data[0, 0] = picture
    conv = net.forward()["conv"][0]
    print(
        "means lie between",
        conv[0].min(),
        "and",
        conv[0].max(),
        "- edges are at",
        np.unique(conv[1].nonzero()[1]),
    )
    net.save("filter.caffemodel")  # keeps what was written


def main(iterations: int = 300) -> list[int]:
    """Returns the digits that are read from a strip of five."""
    filter_by_hand()

    solver = caffe.get_solver(str(MODEL / "solver.prototxt"))
    solver.step(iterations)
    solver.net.save("digits.caffemodel")
    net = caffe.Net(str(MODEL / "deploy.prototxt"), "digits.caffemodel", caffe.TEST)

    Path("everywhere.prototxt").write_text(FULLY_CONVOLUTIONAL)
    # conv1 and conv2 are copied by name; ip1_conv and ip2_conv are new, and filled from ip1 and ip2.
    everywhere = caffe.Net("everywhere.prototxt", "digits.caffemodel", caffe.TEST)
    for name in ("ip1", "ip2"):
        for old, new in zip(net.params[name], everywhere.params[f"{name}_conv"], strict=True):
            new.data.flat = old.data.flat  # (64, 512) as (64, 32, 4, 4)
    everywhere.save("everywhere.caffemodel")

    with np.load(MODEL / "digits.npz") as data:
        pixels, labels = data["pixels"][1500:1505], data["labels"][1500:1505]
    strip = np.concatenate(list(pixels), axis=1)[None, None] / 16  # (1, 1, 8, 40)
    prob = everywhere.forward(data=strip)["prob"][0, :, 0]  # (10, 17): every second column
    read = prob[:, ::4].argmax(axis=0).tolist()
    alone = net.forward_all(data=pixels[:, None] / 16)["prob"].argmax(axis=1).tolist()
    print(f"labels {labels.tolist()}, read from the strip {read}, one by one {alone}")
    return read


if __name__ == "__main__":
    main()
