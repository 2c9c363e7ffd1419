from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffe.errors import LayerError
from caffe.gradient_check import check_gradient
from layer_types import support

TEXT = 'type: "Tile" tile_param {{ {} }}'


@given(st.data())
def test_against_one_element_at_a_time(data):
    shape = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    tiles = data.draw(st.integers(1, 4))
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    layer, bottom, top = support.build(TEXT.format(f"axis: {axis} tiles: {tiles}"), x)
    [y] = support.forward(layer, bottom, top)
    large = list(shape)
    large[axis] *= tiles
    assert y.shape == tuple(large)
    diff = np.arange(y.size).reshape(y.shape) + 1.0
    wanted = np.zeros(shape)
    for place in np.ndindex(*large):
        there = list(place)
        there[axis] %= shape[axis]
        assert y[place] == x[tuple(there)]
        wanted[tuple(there)] += diff[place]
    np.testing.assert_array_equal(support.backward(layer, bottom, top, diff)[0], wanted)


def test_axis_1_is_the_default():
    layer, bottom, top = support.build(TEXT.format("tiles: 2"), np.eye(2))
    assert support.forward(layer, bottom, top)[0].tolist() == [[1, 0, 1, 0], [0, 1, 0, 1]]


def test_gradient(rng):
    check_gradient(TEXT.format("tiles: 3 axis: 1"), rng.standard_normal((2, 2, 3)))


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "Number of tiles must be specified"),
        ("tiles: 0", "Number of tiles must be positive"),
        ("tiles: -1", "Number of tiles must be positive"),
        ("tiles: 2 axis: 2", r"axis \(=2\) must lie in \[-2, 2\)"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(LayerError, match=message):
        support.build(TEXT.format(text), np.zeros((2, 3)))
