from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import ShapeError
from layer_types import support
from layer_types.nets import net_of

TEXT = 'type: "Parameter" parameter_param {{ {} }}'


@pytest.mark.parametrize(
    "text, shape",
    [("shape { dim: 2 dim: 3 }", (2, 3)), ("shape { dim: 0 }", (0,)), ("shape { }", ()), ("", ())],
)
def test_the_top_is_the_parameter(text, shape):
    layer, bottom, top = support.build(TEXT.format(text))
    assert [blob.shape for blob in (*layer.blobs, *top)] == [shape, shape]
    assert not support.forward(layer, bottom, top)[0].any()
    layer.blobs[0].data[...] = 3
    assert (support.forward(layer, bottom, top)[0] == 3).all()
    assert np.shares_memory(top[0].data, layer.blobs[0].data) or not top[0].count


def test_gradients_add_up():
    layer, bottom, top = support.build(TEXT.format("shape { dim: 2 }"))
    support.forward(layer, bottom, top)
    layer.blobs[0].diff[...] = [10, 20]
    support.backward(layer, bottom, top, [1, 2])
    support.backward(layer, bottom, top, [1, 2])
    assert layer.blobs[0].diff.tolist() == [12, 24]


def test_a_frozen_parameter_keeps_its_diff():
    layer, bottom, top = support.build(TEXT.format("shape { dim: 2 }"))
    support.forward(layer, bottom, top)
    layer.param_propagate_down = [False]
    support.backward(layer, bottom, top, [1, 2])
    assert not layer.blobs[0].diff.any()


def test_a_parameter_shared_with_another_layer():
    text = 'type: "Parameter" param { name: "w" } parameter_param { shape { dim: 2 } }'
    net = net_of(f'layer {{ name: "a" top: "a" {text} }} layer {{ name: "b" top: "b" {text} }}')
    net.params["a"][0].data[...] = [3, 4]
    net.forward()
    assert net.blobs["b"].data.tolist() == [3, 4]
    net.clear_param_diffs()
    net.blobs["a"].diff[...], net.blobs["b"].diff[...] = [1, 2], [10, 20]
    net.backward()
    assert net.params["a"][0].diff.tolist() == [11, 22]


def test_it_is_learned():
    net = net_of(
        """layer { name: "p" type: "Parameter" top: "p" parameter_param { shape { dim: 1 dim: 2 } } }
        layer { name: "loss" type: "EuclideanLoss" bottom: "p" bottom: "x" top: "loss" }""",
        force_backward=False,
        x=[[1.0, -2.0]],
    )
    for _ in range(3):
        net.clear_param_diffs()
        net.forward()
        net.backward()
        net.params["p"][0].data[...] -= 0.5 * net.params["p"][0].diff
    np.testing.assert_allclose(net.blobs["p"].data, [[0.875, -1.75]])


def test_a_negative_dimension():
    with pytest.raises(ShapeError, match="every dimension must be 0 or more"):
        support.build(TEXT.format("shape { dim: -2 }"))
