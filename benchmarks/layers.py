"""Every layer type by itself, forward and backward, on its NumPy code: a row each, to show slow ones.

Most layers do little to each number, so that memory decides: GB/s counts each bottom, top and parameter once,
and the baseline is np.copyto of as many bytes. Good for an element-wise layer: at most 10 times the copy.
Layers that are matrix products count GFLOP/s, beside one np.matmul of 512 x 512. All three are timed in turn.

    scripts/bench layers [type ...]             CAFFE_ENGINE=onednn measures that engine instead
"""

from __future__ import annotations

import math
import os
import sys

import numpy as np
from google.protobuf import text_format

import caffe
import harness
from caffe.proto import caffe_pb2

IMAGES = (16, 64, 56, 56)
ROWS = (4096, 256)
POSITIONS = (8, 21, 64, 64)
STEPS = (20, 32, 256)

PLAIN = """AbsVal BNLL BatchNorm Bias Dropout ELU Exp Flatten LRN Log MVN PReLU Power ReLU Reduction Scale
    Sigmoid Silence Softmax Split Swish TanH Threshold""".split()
SCORED = (ROWS, ROWS[:1])
# type: (shapes of the bottoms, parameters, multiplications and additions per forward pass or 0). Labels are 0.
CASES: dict[str, tuple[tuple[tuple[int, ...], ...], str, float]] = {
    **dict.fromkeys(PLAIN, ((IMAGES,), "", 0)),
    "Accuracy": (SCORED, "", 0),
    "ArgMax": ((ROWS,), "", 0),
    "BatchReindex": ((IMAGES, IMAGES[:1]), "", 0),
    "Clip": ((IMAGES,), "clip_param { min: -1 max: 1 }", 0),
    "Concat": ((IMAGES, IMAGES), "", 0),
    "ContrastiveLoss": ((ROWS, ROWS, ROWS[:1]), "", 0),
    "Convolution": (
        (IMAGES,),
        "convolution_param { num_output: 64 kernel_size: 3 pad: 1 }",
        2 * math.prod(IMAGES) * 64 * 9,
    ),
    "Crop": (((16, 64, 64, 64), IMAGES), "crop_param { offset: 4 }", 0),
    "Deconvolution": (
        (IMAGES,),
        "convolution_param { num_output: 64 kernel_size: 2 stride: 2 }",
        2 * math.prod(IMAGES) * 64 * 4,
    ),
    "Eltwise": ((IMAGES, IMAGES), "", 0),
    "Embed": ((ROWS[:1],), "embed_param { input_dim: 1000 num_output: 256 }", 0),
    "EuclideanLoss": ((IMAGES, IMAGES), "", 0),
    "Filter": ((IMAGES, IMAGES[:1]), "", 0),
    "HingeLoss": (SCORED, "", 0),
    "Im2col": ((IMAGES,), "convolution_param { kernel_size: 3 pad: 1 }", 0),
    "InfogainLoss": (((*ROWS[:1], 32), ROWS[:1], (32, 32)), "", 0),
    "InnerProduct": ((ROWS,), "inner_product_param { num_output: 256 }", 2 * math.prod(ROWS) * 256),
    "LSTM": ((STEPS, STEPS[:2]), "recurrent_param { num_output: 256 }", 2 * math.prod(STEPS) * 2048),
    "LSTMUnit": (((1, 512, 256), (1, 512, 1024), (1, 512)), 'top: "h"', 0),
    "MultinomialLogisticLoss": (SCORED, "", 0),
    "Pooling": ((IMAGES,), "pooling_param { kernel_size: 3 stride: 2 }", 0),
    "RNN": ((STEPS, STEPS[:2]), "recurrent_param { num_output: 256 }", 2 * math.prod(STEPS) * 768),
    "Reshape": ((IMAGES,), "reshape_param { shape { dim: 0 dim: -1 } }", 0),
    "SPP": ((IMAGES,), "spp_param { pyramid_height: 3 }", 0),
    "SigmoidCrossEntropyLoss": ((IMAGES, IMAGES), "", 0),
    "Slice": ((IMAGES,), 'top: "z"', 0),
    "SoftmaxWithLoss": ((POSITIONS, (8, 64, 64)), "", 0),
    "Tile": ((IMAGES,), "tile_param { tiles: 2 }", 0),
}
NO_GRADIENT = {"Accuracy", "ArgMax", "Threshold"}
INDEX_BOTTOMS = {"BatchReindex", "Embed", "Filter", "InfogainLoss"}  # the last of them has no gradient


def net_of(type: str) -> caffe.Net:
    """An Input, and the layer, whose bottoms hold positive numbers, or zeros where they are labels."""
    shapes, fields, _ = CASES[type]
    param = caffe_pb2.NetParameter(force_backward=type not in NO_GRADIENT | INDEX_BOTTOMS)
    names = [f"b{i}" for i in range(len(shapes))]
    for name, shape in zip(names, shapes, strict=True):
        param.layer.add(name=name, type="Input", top=[name]).input_param.shape.add(dim=shape)
    top = [] if type == "Silence" else ["y", "z"] if type == "Split" else ["y"]
    layer = param.layer.add(name="L", type=type, bottom=names, top=top)
    text_format.Merge(fields, layer)
    net = caffe.Net(param, caffe.TRAIN)
    rng = np.random.default_rng(0)
    for i, (name, shape) in enumerate(zip(names, shapes, strict=True)):
        like_labels = i == len(shapes) - 1 and len(shape) < len(shapes[0])
        if not like_labels or type in ("LSTM", "RNN", "LSTMUnit", "InfogainLoss"):
            net.blobs[name].data[...] = rng.random(shape, np.float32) + 0.1
    if type == "Embed":
        net.blobs["b0"].data[...] = rng.integers(0, 1000, shapes[0])
    if type == "Filter":
        net.blobs["b1"].data[::2] = 1
    net.forward()
    return net


def measure(type: str) -> str:
    net = net_of(type)
    step = net._steps[-1]
    blobs = (*step.bottom, *step.top, *step.layer.blobs)
    down = [net.param.force_backward and step.layer.allow_force_backward(i) for i in range(len(step.bottom))]
    down[0] = down[0] or type in {"BatchReindex", "Filter", "InfogainLoss"}
    step.layer.param_propagate_down = [True] * len(step.layer.blobs)
    numbers = sum(blob.count for blob in blobs)
    source, target = np.ones(numbers // 2, np.float32), np.zeros(numbers // 2, np.float32)
    square = np.ones((512, 512), np.float32)
    operations = CASES[type][2]
    candidates = {
        "forward": lambda: lambda: step.kernel.forward(net.run, step.bottom, step.top),
        "base": (lambda: lambda: square @ square)
        if operations
        else (lambda: lambda: np.copyto(target, source)),
    }
    if type not in NO_GRADIENT:
        candidates["backward"] = lambda: lambda: step.kernel.backward(net.run, step.top, down, step.bottom)
    results = harness.compare(candidates, rounds=7, warm_up=1)
    cells = []
    for name, factor in (("forward", 1), ("backward", 2 if operations else 1)):
        if name not in results:
            cells.append(f"{'-':>10} {'':8} {'':10}")
            continue
        seconds, base = results[name].median, results["base"].median
        speed, unit, best = 4e-9 * numbers * factor / seconds, "GB/s", 4e-9 * numbers / base
        if operations:
            speed, unit, best = 1e-9 * operations * factor / seconds, "GF/s", 1e-9 * 2 * 512**3 / base
        cells.append(f"{seconds * 1e3:10.3f} {speed:8.1f} {unit} {best / speed:5.1f}")
    return f"  {type:24}" + " ".join(cells)


def main() -> None:
    os.environ.setdefault("CAFFE_ENGINE", "reference")
    wanted = sys.argv[1:] or sorted(CASES)
    print(harness.machine())
    print(
        f"Layers, engine {os.environ['CAFFE_ENGINE']}; x: how many times as slow as the copy or the product"
    )
    print(f"  {'':24}{'forward':>10} {'':8} {'':4} {'x':>5} {'backward':>10} {'':8} {'':4} {'x':>5}")
    for type in wanted:
        print(measure(type), flush=True)


if __name__ == "__main__":
    main()
