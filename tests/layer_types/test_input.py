from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError, ShapeError
from layer_types import support
from layer_types.nets import net_of

TEXT = 'type: "Input" input_param {{ {} }}'


@pytest.mark.parametrize(
    "shapes, wanted",
    [
        ("shape { dim: 2 dim: 3 }", [(2, 3), (2, 3)]),
        ("shape { dim: 2 dim: 3 } shape { dim: 4 }", [(2, 3), (4,)]),
        ("shape { }", [(), ()]),
        ("shape { dim: 0 dim: 3 }", [(0, 3), (0, 3)]),
        ("", [(), ()]),
    ],
)
def test_shapes(shapes, wanted):
    layer, bottom, top = support.build(TEXT.format(shapes), tops=2)
    assert [blob.shape for blob in top] == wanted
    assert not any(data.any() for data in support.forward(layer, bottom, top))


def test_values_and_shapes_that_the_user_sets_last():
    net = net_of('layer { name: "L" type: "Silence" bottom: "x" }', x=np.zeros((2, 3)))
    net.blobs["x"].reshape(4, 3)
    net.reshape()
    net.blobs["x"].data[...] = 5
    net.forward()
    net.backward()
    assert net.blobs["x"].data.tolist() == [[5] * 3] * 4


def test_a_number_of_shapes_that_does_not_fit():
    with pytest.raises(
        LayerError, match="Must specify 'shape' once, once per top blob, or not at all: 3 tops vs. 2"
    ):
        support.build(TEXT.format("shape { } shape { }"), tops=3)


def test_a_negative_dimension():
    with pytest.raises(ShapeError, match="layer 'L' .*every dimension must be 0 or more"):
        net_of('layer { name: "L" type: "Input" top: "x" input_param { shape { dim: -1 } } }')


def test_it_takes_no_bottom():
    with pytest.raises(LayerError, match="Input Layer takes 0 bottom"):
        net_of('layer { name: "L" type: "Input" bottom: "x" top: "t" }', x=np.zeros(2))


def test_it_needs_a_top():
    with pytest.raises(LayerError, match="at least 1 top"):
        net_of('layer { name: "L" type: "Input" }')
