from __future__ import annotations

import math

import numpy as np
import pytest

from caffe.errors import LayerError, ShapeError
from caffe.gradient_check import check_gradient
from layer_types import support

TEXT = 'type: "Eltwise" eltwise_param {{ {} }}'
SHAPES = [(2, 3), (), (0, 2), (2, 1, 1, 3)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("coeff", [None, [1, 1, 1, 1], [2, -0.5, 1, 0]])
def test_sum(rng, shape, count, coeff):
    x = rng.standard_normal((count, *shape))
    text = "" if coeff is None else " ".join(f"coeff: {c}" for c in coeff[:count])
    layer, bottom, top = support.build(TEXT.format(text), *x)
    weights = (coeff or [1] * 4)[:count]
    wanted = sum(w * b for w, b in zip(weights, x, strict=True))
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], wanted, atol=1e-12)
    diff = rng.standard_normal(shape)
    for got, w in zip(support.backward(layer, bottom, top, diff), weights, strict=True):
        np.testing.assert_allclose(got, w * diff)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("stable", ["true", "false"])
def test_product(rng, shape, count, stable):
    x = rng.uniform(0.5, 2, (count, *shape))
    layer, bottom, top = support.build(TEXT.format(f"operation: PROD stable_prod_grad: {stable}"), *x)
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], np.prod(x, axis=0))
    diff = rng.standard_normal(shape)
    for i, got in enumerate(support.backward(layer, bottom, top, diff)):
        np.testing.assert_allclose(got, diff * np.prod(np.delete(x, i, axis=0), axis=0))


def test_the_stable_product_gradient_survives_zeros():
    for stable, wanted in (("true", 3), ("false", math.nan)):
        layer, bottom, top = support.build(
            TEXT.format(f"operation: PROD stable_prod_grad: {stable}"), [0.0], [3.0]
        )
        support.forward(layer, bottom, top)
        np.testing.assert_array_equal(support.backward(layer, bottom, top, [1.0])[0], [wanted])


def winner(values):
    """Which bottom the original takes: bottom 1 over an equal bottom 0, later ones only if greater."""
    best = 0 if values[0] > values[1] else 1
    for i in range(2, len(values)):
        if values[i] > values[best]:
            best = i
    return best


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("levels", [2, 1000])
def test_maximum(rng, shape, count, levels):
    x = rng.integers(0, levels, (count, *shape)).astype(float)
    layer, bottom, top = support.build(TEXT.format("operation: MAX"), *x)
    np.testing.assert_array_equal(support.forward(layer, bottom, top)[0], x.max(axis=0))
    diff = rng.standard_normal(shape)
    diffs = np.array(support.backward(layer, bottom, top, diff))
    for place in np.ndindex(*shape):
        wanted = np.zeros(count)
        wanted[winner(x[(slice(None), *place)])] = diff[place]
        np.testing.assert_array_equal(diffs[(slice(None), *place)], wanted)


@pytest.mark.parametrize("text", ["", "coeff: 2 coeff: 3 coeff: -1", "operation: PROD", "operation: MAX"])
def test_gradient(rng, text):
    # Distinct multiples, so that no two bottoms come near each other.
    x = rng.permutation(np.arange(1, 25)).reshape(3, 2, 4) * 0.1
    check_gradient(TEXT.format(text), *x)
    check_gradient(TEXT.format(text), *x, check_bottom=2)


def test_in_place_on_the_first_bottom():
    x = [np.array([1.0, -2.0]), np.array([3.0, 4.0])]
    layer, bottom, top = support.build(TEXT.format(""), *x, in_place=True)
    assert not layer.in_place_refusal()
    assert support.forward(layer, bottom, top)[0].tolist() == [4, 2]
    assert [d.tolist() for d in support.backward(layer, bottom, top, [5.0, 6.0])] == [[5, 6], [5, 6]]


@pytest.mark.parametrize(
    "text, wanted", [("operation: MAX", 3), ("operation: PROD", -6), ("coeff: 2 coeff: 0.5", -2.5)]
)
def test_in_place_without_a_gradient(text, wanted):
    layer, bottom, top = support.build(TEXT.format(text), [-2.0], [3.0], in_place=True)
    assert support.forward(layer, bottom, top)[0].tolist() == [wanted]
    assert "gradient needs" in layer.in_place_refusal()


@pytest.mark.parametrize(
    "text, message",
    [
        ("coeff: 1", "takes one coefficient per bottom blob: coeff holds 1 for 2 bottoms"),
        ("operation: PROD coeff: 1 coeff: 1", "only takes coefficients for summation"),
        ("operation: MAX coeff: 1 coeff: 1", "only takes coefficients for summation"),
    ],
)
def test_coefficients_that_do_not_fit(text, message):
    with pytest.raises(LayerError, match=message):
        support.build(TEXT.format(text), [1.0], [1.0])


def test_unlike_shapes_are_named():
    with pytest.raises(ShapeError, match=r"bottom\[0\]: 2 3 \(6\), bottom\[1\]: 3 2 \(6\)"):
        support.build(TEXT.format(""), np.zeros((2, 3)), np.zeros((3, 2)))
