"""A net that runs backward refuses a layer that works in place and then misses what it overwrote."""

from __future__ import annotations

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
