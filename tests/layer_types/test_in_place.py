"""A net that runs backward refuses a layer that works in place and then misses what it overwrote."""

from __future__ import annotations

import re

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe.proto import caffe_pb2

REFUSED = [
    'type: "BNLL"',
    'type: "Clip" clip_param { min: 0 max: 1 }',
    'type: "Log"',
    'type: "Power" power_param { power: 2 }',
    'type: "ReLU" relu_param { negative_slope: -0.5 }',
    'type: "ELU" elu_param { alpha: -1 }',
]
ALLOWED = [
    'type: "BatchNorm"',
    'type: "Bias"',
    'type: "Dropout"',
    'type: "ELU"',
    'type: "Exp"',
    'type: "MVN"',
    'type: "Power" power_param { scale: 3 }',
    'type: "PReLU"',
    'type: "ReLU" relu_param { negative_slope: 0.5 }',
    'type: "Scale" scale_param { bias_term: true }',
    'type: "Sigmoid"',
    'type: "Softmax"',
    'type: "Swish"',
    'type: "TanH"',
]


def build(layer: str, backward: bool) -> caffe.Net:
    text = f"""
        force_backward: {str(backward).lower()}
        layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ dim: 2 dim: 3 }} }} }}
        layer {{ name: "L" {layer} bottom: "x" top: "x" }}"""
    return caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), caffe.TRAIN)


@pytest.mark.parametrize("layer", REFUSED)
def test_refused_where_a_gradient_is_needed(layer):
    with pytest.raises(caffe.CaffeError, match="layer 'L' .*cannot work in place on 'x'"):
        build(layer, backward=True)
    net = build(layer, backward=False)
    net.blobs["x"].data[...] = 1
    net.forward()


@pytest.mark.parametrize("layer", ALLOWED)
def test_allowed(layer):
    net = build(layer, backward=True)
    net.forward()
    net.backward()


@pytest.mark.parametrize(
    "layer", ['type: "BatchNorm"', 'type: "Dropout"', 'type: "PReLU"', 'type: "Scale"', 'type: "Swish"']
)
def test_reshape_to_the_same_shape_keeps_what_backward_needs(layer, rng):
    x, dy = rng.standard_normal((2, 3)), rng.standard_normal((2, 3))
    diffs = []
    for again in (False, True):
        caffe.set_random_seed(1)
        net = build(layer, backward=True)
        net.blobs["x"].data[...] = x
        net.forward()
        if again:
            net.reshape()
        net.blobs["x"].diff[...] = dy
        net.backward()
        diffs.append(net.blobs["x"].diff.copy())
    assert (diffs[0] == diffs[1]).all()


IMAGE = (2, 3, 4, 4)
NO_BOTTOM_OR_TOP = {
    *("Data", "DummyData", "HDF5Data", "ImageData", "Input", "MemoryData", "Parameter", "WindowData"),
    *("HDF5Output", "Python", "Silence"),  # Python: the user decides
}
# What else a type needs: its bottoms' shapes, the first being worked on in place, and its parameters.
SHAPES = {
    "Accuracy": ((2, 3), (2,)),
    "BatchReindex": (IMAGE, (2,)),
    "ContrastiveLoss": ((2, 3), (2, 3), (2,)),
    "Crop": (IMAGE, IMAGE),
    "Eltwise": (IMAGE, IMAGE),
    "EuclideanLoss": (IMAGE, IMAGE),
    "Filter": (IMAGE, (2,)),
    "HingeLoss": ((2, 3), (2,)),
    "InfogainLoss": ((2, 3), (2,), (3, 3)),
    "LSTM": ((2, 3, 4), (2, 3)),
    "LSTMUnit": ((1, 2, 3), (1, 2, 12), (1, 2)),
    "MultinomialLogisticLoss": ((2, 3), (2,)),
    "RNN": ((2, 3, 4), (2, 3)),
    "SigmoidCrossEntropyLoss": (IMAGE, IMAGE),
    "SoftmaxWithLoss": ((2, 3), (2,)),
}
WINDOW = "convolution_param { num_output: 3 kernel_size: 1 }"
FIELDS = {
    "Clip": "clip_param { min: 0 max: 1 }",
    "Convolution": WINDOW,
    "Deconvolution": WINDOW,
    "Embed": "embed_param { input_dim: 2 num_output: 1 }",
    "Im2col": WINDOW,
    "InnerProduct": "inner_product_param { num_output: 4 axis: -1 }",
    "LSTM": "recurrent_param { num_output: 4 }",
    "LSTMUnit": 'top: "h"',
    "Pooling": "pooling_param { kernel_size: 1 }",
    "RNN": "recurrent_param { num_output: 4 }",
    "Reshape": "reshape_param { shape { dim: 0 dim: -1 } }",
    "SPP": "spp_param { pyramid_height: 1 }",
    "Tile": "tile_param { tiles: 1 }",
}


def alone(type: str, in_place: bool, backward: bool) -> caffe.Net:
    shapes = SHAPES.get(type, (IMAGE,))
    inputs = f"force_backward: {str(backward).lower()} " + "".join(
        f'layer {{ name: "b{i}" type: "Input" top: "b{i}" input_param {{ shape {{ '
        f"{' '.join(f'dim: {d}' for d in shape)} }} }} }}"
        for i, shape in enumerate(shapes)
    )
    bottoms = " ".join(f'bottom: "b{i}"' for i in range(len(shapes)))
    top = "b0" if in_place else "y"
    layer = f'layer {{ name: "L" type: "{type}" {bottoms} top: "{top}" {FIELDS.get(type, "")} }}'
    caffe.set_random_seed(1)
    return caffe.Net(text_format.Parse(inputs + layer, caffe_pb2.NetParameter()), caffe.TRAIN)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("type", sorted(set(caffe.layer_type_list()) - NO_BOTTOM_OR_TOP))
def test_every_type_is_right_in_place_or_refuses(type, backward, engine, rng):
    apart = alone(type, False, backward)
    try:
        together = alone(type, True, backward)
    except caffe.CaffeError as error:
        assert re.search("in-place computation|cannot work in place", str(error))
        return
    for i, shape in enumerate(SHAPES.get(type, (IMAGE,))):
        values = rng.random(shape)
        for net in (apart, together):
            net.blobs[f"b{i}"].data[...] = values
    apart.forward()
    together.forward()
    np.testing.assert_allclose(together.blobs["b0"].data, apart.blobs["y"].data, rtol=1e-5, atol=1e-6)
    if not backward or type == "Threshold":  # which has no gradient
        return
    diff = rng.standard_normal(together.blobs["b0"].shape)
    for net, top in ((apart, "y"), (together, "b0")):
        net.blobs[top].diff[...] = diff
        net.backward()
    np.testing.assert_allclose(together.blobs["b0"].diff, apart.blobs["b0"].diff, rtol=1e-4, atol=1e-5)


def spoiled(
    first: str, second: str, tops: str, backward: bool, caplog: pytest.LogCaptureFixture
) -> list[str]:
    """The warnings about two layers, one from x to the first top, the other from there to the second."""
    caplog.clear()
    a, b = tops.split()
    text = f"""
        force_backward: {str(backward).lower()}
        layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ dim: 2 dim: 3 }} }} }}
        layer {{ name: "A" type: "{first}" bottom: "x" top: "{a}" }}
        layer {{ name: "B" type: "{second}" bottom: "{a}" top: "{b}" }}"""
    caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), caffe.TRAIN)
    return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]


@pytest.mark.parametrize("type", ["ELU", "Exp", "MVN", "Sigmoid", "Softmax", "Swish", "TanH"])
@pytest.mark.parametrize("top", ["x", "y"])
def test_a_gradient_that_a_later_layer_spoils_is_told(type, top, caplog):
    """The original's gradient is wrong there, and recorded nets have it."""
    (message,) = spoiled(type, "Power", f"{top} {top}", True, caplog)
    assert f"layer 'B' (Power) works in place on '{top}'" in message and "layer 'A'" in message
    assert not spoiled(type, "Power", f"{top} z", True, caplog)
    assert not spoiled(type, "Power", f"{top} {top}", False, caplog)


def test_a_rectifier_in_place_needs_the_signs_only(caplog):
    assert spoiled("ReLU", "BatchNorm", "x x", True, caplog)
    assert not spoiled("ReLU", "BatchNorm", "y y", True, caplog)
    for harmless in ("Dropout", "ReLU", "TanH"):
        assert not spoiled("ReLU", harmless, "x x", True, caplog)
