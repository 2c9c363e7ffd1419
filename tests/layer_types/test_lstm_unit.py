from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError, ShapeError
from caffe.gradient_check import check_gradient
from layer_types import support

TEXT = 'type: "LSTMUnit"'


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def bottoms(rng, streams=3, size=4, cont=(1, 0, 1)):
    return (
        rng.standard_normal((1, streams, size)),
        rng.standard_normal((1, streams, 4 * size)),
        np.array([cont], float),
    )


def test_against_loops(rng):
    c_prev, x, cont = bottoms(rng)
    layer, bottom, top = support.build(TEXT, c_prev, x, cont, tops=2)
    c, h = support.forward(layer, bottom, top)
    for n, d in np.ndindex(3, 4):
        i, f, o, g = (x[0, n, k * 4 + d] for k in range(4))
        cell = cont[0, n] * sigmoid(f) * c_prev[0, n, d] + sigmoid(i) * np.tanh(g)
        np.testing.assert_allclose(c[0, n, d], cell)
        np.testing.assert_allclose(h[0, n, d], sigmoid(o) * np.tanh(cell))
    np.testing.assert_array_equal(bottom[1].data, x)


def test_gradient(rng):
    check_gradient(TEXT, *bottoms(rng))
    check_gradient(TEXT, *bottoms(rng), check_top=0)
    check_gradient(TEXT, *bottoms(rng), check_top=1)


def test_sequence_indicators_have_no_gradient(rng):
    layer, bottom, top = support.build(TEXT, *bottoms(rng), tops=2)
    assert [layer.allow_force_backward(i) for i in range(3)] == [True, True, False]
    layer.forward(bottom, top)
    with pytest.raises(LayerError, match="Cannot backpropagate to sequence indicators"):
        layer.backward(top, [True, True, True], bottom)
    bottom[0].diff[...] = bottom[1].diff[...] = 7
    layer.backward(top, [False, False, False], bottom)
    assert (bottom[0].diff == 7).all() and (bottom[1].diff == 7).all()


@pytest.mark.filterwarnings("error")
def test_extreme_values_saturate(rng):
    c_prev, x, cont = bottoms(rng)
    layer, bottom, top = support.build(TEXT, c_prev, 1e4 * np.sign(x), cont, tops=2, dtype=np.float32)
    assert all(np.isfinite(y).all() for y in support.forward(layer, bottom, top))
    assert all(np.isfinite(x).all() for x in support.backward(layer, bottom, top, c_prev, c_prev)[:2])


def test_empty_batch():
    layer, bottom, top = support.build(TEXT, np.ones((1, 0, 4)), np.ones((1, 0, 16)), np.ones((1, 0)), tops=2)
    assert [y.shape for y in support.forward(layer, bottom, top)] == [(1, 0, 4)] * 2
    support.backward(layer, bottom, top)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (((2, 3, 4), (2, 3, 16), (2, 3)), r"bottom\[0\] must have the shape \(1, N, D\), not \(2, 3, 4\)"),
        (((1, 3, 4), (1, 3, 15), (1, 3)), r"bottom\[1\] must have the shape \(1, 3, 16\), not \(1, 3, 15\)"),
        (((1, 3, 4), (1, 3, 16), (1, 2)), r"bottom\[2\] must have the shape \(1, 3\), not \(1, 2\)"),
    ],
)
def test_other_shapes_are_refused(shapes, words):
    with pytest.raises(ShapeError, match=words):
        support.build(TEXT, *map(np.ones, shapes), tops=2)
