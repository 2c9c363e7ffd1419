from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError
from caffe.gradient_check import check_gradient
from layer_types import support

TEXT = 'type: "Softmax" softmax_param {{ axis: {} }}'


def naive(x, axis):
    y = np.exp(x)
    return y / np.expand_dims(y.sum(axis), axis)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((4, 3), 1),
        ((2, 3, 4), 1),
        ((2, 3, 4, 5), 0),
        ((2, 3, 4, 5), -1),
        ((2, 3, 4, 5, 2), 2),
        ((7,), 0),
        ((2, 1), 1),
    ],
)
def test_against_the_formula(shape, axis, in_place, rng):
    x, dy = rng.standard_normal(shape), rng.standard_normal(shape)
    layer, bottom, top = support.build(TEXT.format(axis), x, in_place=in_place)
    y = naive(x, axis)
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], y)
    dx = y * (dy - np.expand_dims((dy * y).sum(axis), axis))
    np.testing.assert_allclose(support.backward(layer, bottom, top, dy)[0], dx, atol=1e-15)


@pytest.mark.parametrize("shape", [(0, 3), (2, 3, 0), (2, 0, 3)])
def test_empty_bottoms(shape):
    layer, bottom, top = support.build(TEXT.format(1), np.ones(shape))
    assert support.forward(layer, bottom, top)[0].shape == shape
    assert support.backward(layer, bottom, top, np.ones(shape))[0].shape == shape


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gradient(axis, rng):
    check_gradient(TEXT.format(axis), rng.standard_normal((3, 4, 2)))


@pytest.mark.filterwarnings("error")
def test_extreme_values_do_not_overflow():
    layer, bottom, top = support.build(
        TEXT.format(1), [[1e30, 0, -1e30], [-1e30, -1e30, -1e30]], dtype=np.float32
    )
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], [[1, 0, 0], [1 / 3] * 3], rtol=1e-6)


def test_without_propagate_down_nothing_is_written():
    layer, bottom, top = support.build(TEXT.format(1), np.ones((2, 3)))
    support.forward(layer, bottom, top)
    bottom[0].diff[...] = 7
    layer.backward(top, [False], bottom)
    assert (bottom[0].diff == 7).all()


def test_axis_outside_is_refused():
    with pytest.raises(LayerError, match=r"axis \(=2\) must lie in \[-2, 2\)"):
        support.build(TEXT.format(2), np.ones((2, 3)))
