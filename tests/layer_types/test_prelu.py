from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import ShapeError
from caffe.gradient_check import check_gradient
from layer_types import support

TEXT = 'type: "PReLU" prelu_param {{ {} }}'
SHARED = TEXT.format("channel_shared: true")
UNSHARED = TEXT.format("")
SHAPES = [(4, 3), (2, 3, 4), (2, 3, 2, 5), (1, 3, 2, 1, 2), (0, 3, 2)]


def naive(x, dy, slopes):
    y, dx, dslopes = np.empty_like(x), np.empty_like(x), np.zeros_like(slopes)
    for index in np.ndindex(x.shape):
        c = () if slopes.ndim == 0 else index[1]
        if x[index] > 0:
            y[index], dx[index] = x[index], dy[index]
        else:
            y[index], dx[index] = slopes[c] * x[index], slopes[c] * dy[index]
            dslopes[c] += dy[index] * x[index]
    return y, dx, dslopes


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("text", [SHARED, UNSHARED])
@pytest.mark.parametrize("shape", SHAPES)
def test_against_loops(shape, text, in_place, rng):
    x, dy = rng.standard_normal(shape), rng.standard_normal(shape)
    slopes = np.array(-0.4) if text is SHARED else np.array([0.5, -0.25, 1.5])
    layer, bottom, top = support.build(text, x, in_place=in_place)
    layer.blobs[0].data[...] = slopes
    layer.blobs[0].diff[...] = 10
    y, dx, dslopes = naive(x, dy, slopes)
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], y)
    np.testing.assert_allclose(support.backward(layer, bottom, top, dy)[0], dx)
    np.testing.assert_allclose(layer.blobs[0].diff, 10 + dslopes)


def test_shared_slope_takes_one_axis_or_none(rng):
    for shape in ((5,), ()):
        x = rng.standard_normal(shape)
        layer, bottom, top = support.build(SHARED, x)
        np.testing.assert_allclose(support.forward(layer, bottom, top)[0], np.where(x > 0, x, 0.25 * x))


@pytest.mark.parametrize("text", [SHARED, UNSHARED])
def test_gradient(text, rng):
    check_gradient(text, rng.standard_normal((2, 3, 4)), kinks=[0], kink_range=0.01)


def test_slopes_come_from_the_filler():
    layer, _, _ = support.build(TEXT.format("filler { value: 0.5 }"), np.ones((2, 3)))
    assert layer.blobs[0].data.tolist() == [0.5] * 3
    layer, _, _ = support.build(SHARED, np.ones((2, 3)))
    assert layer.blobs[0].shape == () and layer.blobs[0].data == 0.25


def test_frozen_slopes_get_no_diff(rng):
    layer, bottom, top = support.build(UNSHARED, rng.standard_normal((2, 3)))
    layer.param_propagate_down = [False]
    support.forward(layer, bottom, top)
    support.backward(layer, bottom, top, rng.standard_normal((2, 3)))
    assert not layer.blobs[0].diff.any()


def test_shapes_that_do_not_fit_are_refused(rng):
    with pytest.raises(ShapeError, match="Number of axes of bottom blob must be >=2"):
        support.build(UNSHARED, np.ones(3))
    layer, bottom, top = support.build(UNSHARED, np.ones((2, 3)))
    bottom[0].reshape(2, 4)
    with pytest.raises(ShapeError, match="3 slopes do not fit"):
        layer.reshape(bottom, top)
