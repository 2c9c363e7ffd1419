from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe.gradient_check import check_gradient
from caffe.proto import caffe_pb2
from layer_types import support
from layer_types.neuron import check_elementwise, skipped_gradient_leaves_diff, spread

TEXT = 'type: "Power" power_param {{ power: {} scale: {} shift: {} }}'
# power, scale, shift, and whether backward works in place
CASES = [
    (1, 1, 0, True),
    (1, 3, -0.25, True),
    (0, 2, 3, True),
    (2.5, 0, 1.5, True),
    (2, 0.5, -1, False),
    (3, -2, 0.5, False),
    (6, 0.5, 0.25, False),
    (-3, 0.5, 2.25, False),
    (40, 0.125, 1, False),
    (-1, 0.5, 2.25, False),
    (0.5, 1.5, 5, False),
    (1.75, 1, 4, False),
    (-2.5, 0.5, 3, False),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("power", "scale", "shift", "in_place"), CASES)
def test_formula_and_derivative(power, scale, shift, in_place, dtype):
    def derivative(x):
        return power * scale * (shift + scale * x) ** (power - 1.0) if power else np.zeros_like(x)

    text = TEXT.format(power, scale, shift)
    check_elementwise(
        text, spread(-2, 2), lambda x: (shift + scale * x) ** np.float64(power), derivative, in_place, dtype
    )
    layer, _, _ = support.build(text, [1.0])
    assert bool(layer.in_place_refusal()) is not in_place


@pytest.mark.parametrize(("power", "scale", "shift", "_"), CASES)
def test_gradient(power, scale, shift, _):
    check_gradient(TEXT.format(power, scale, shift), spread(-2, 2).reshape(4, 6))


def test_gradient_where_the_base_is_zero():
    layer, bottom, top = support.build(TEXT.format(2, 1, 0), [0.0])
    support.forward(layer, bottom, top)
    assert support.backward(layer, bottom, top, [1.0])[0].tolist() == [0]


def test_without_propagate_down_nothing_is_written():
    skipped_gradient_leaves_diff(TEXT.format(2, 1, 0), [1.0, -1.0])


def _in_place_net(*scales: float) -> caffe.Net:
    layers = "".join(
        f'layer {{ name: "p{i}" type: "Power" bottom: "x" top: "x" power_param {{ scale: {s} }} }}\n'
        for i, s in enumerate(scales)
    )
    text = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 3 } } }\n' + layers
    net = caffe.Net(text_format.Parse("force_backward: true\n" + text, caffe_pb2.NetParameter()), caffe.TRAIN)
    net.blobs["x"].data[...] = 1
    net.forward()
    net.blobs["x"].diff[...] = [1, 2, 3]
    net.backward()
    return net


def test_alone_in_place_the_gradient_is_true():
    assert _in_place_net(3).blobs["x"].diff.tolist() == [3, 6, 9]


def test_in_a_chain_in_place_the_originals_constant_is_kept():
    assert _in_place_net(3, 5).blobs["x"].diff.tolist() == [9, 9, 9]
