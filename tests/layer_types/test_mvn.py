from __future__ import annotations

import numpy as np
import pytest

from caffe.gradient_check import check_gradient
from layer_types import support

TEXT = 'type: "MVN" mvn_param {{ normalize_variance: {} across_channels: {} eps: {} }}'
SHAPES = [(2, 3, 4, 5), (2, 3, 4), (2, 1, 3, 2, 2), (3, 4), (5,)]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_against_loops(shape, normalize, across, in_place, rng):
    x = 3 + 2 * rng.standard_normal(shape)
    text = TEXT.format(str(normalize).lower(), str(across).lower(), 0.25)
    layer, bottom, top = support.build(text, x, in_place=in_place)
    y = x.copy()
    for group in np.ndindex(shape[:1] if across else shape[:2]):
        part = x[group] - x[group].mean()
        y[group] = part / (np.sqrt((part**2).mean()) + 0.25) if normalize else part
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], y, atol=1e-12)


@pytest.mark.parametrize("in_place", [False, True])
def test_gradient_in_place_is_the_same(in_place, rng):
    x, dy = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 3, 4))
    layer, bottom, top = support.build(TEXT.format("true", "false", 0.1), x, in_place=in_place)
    support.forward(layer, bottom, top)
    [dx] = support.backward(layer, bottom, top, dy)
    centred = x - x.mean(2, keepdims=True)
    deviation = np.sqrt((centred**2).mean(2, keepdims=True))
    own = centred * (dy * centred).mean(2, keepdims=True) / (deviation * (deviation + 0.1) ** 2)
    np.testing.assert_allclose(dx, (dy - dy.mean(2, keepdims=True)) / (deviation + 0.1) - own)


@pytest.mark.parametrize("across", ["true", "false"])
@pytest.mark.parametrize(("normalize", "eps"), [("false", 1), ("true", 1e-9), ("true", 0.3), ("true", 2)])
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 2, 3, 2)])
def test_gradient(shape, normalize, eps, across, rng):
    check_gradient(TEXT.format(normalize, across, eps), rng.standard_normal(shape))


def test_defaults():
    layer, bottom, top = support.build('type: "MVN"', [[[1.0, 3.0], [4.0, 8.0]]])
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], [[[-1, 1], [-1, 1]]])


@pytest.mark.filterwarnings("error")
def test_constant_and_empty_bottoms():
    layer, bottom, top = support.build('type: "MVN"', np.full((1, 2, 3), 5.0))
    assert not support.forward(layer, bottom, top)[0].any()
    assert np.isfinite(support.backward(layer, bottom, top, np.ones((1, 2, 3)))[0]).all()
    for shape in ((0, 2, 3), (2, 3, 0)):
        layer, bottom, top = support.build('type: "MVN"', np.ones(shape))
        assert support.forward(layer, bottom, top)[0].shape == shape
        assert support.backward(layer, bottom, top, np.ones(shape))[0].shape == shape


def test_without_propagate_down_nothing_is_written():
    layer, bottom, top = support.build('type: "MVN"', np.ones((1, 2, 3)))
    support.forward(layer, bottom, top)
    bottom[0].diff[...] = 7
    layer.backward(top, [False], bottom)
    assert (bottom[0].diff == 7).all()
