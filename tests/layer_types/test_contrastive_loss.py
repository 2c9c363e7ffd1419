from __future__ import annotations

import math

import numpy as np
import pytest

from caffe.errors import LayerError, ShapeError
from caffe.gradient_check import check_gradient
from layer_types import support

TYPE = 'type: "ContrastiveLoss" '


def naive(a, b, similar, margin, legacy):
    total = 0.0
    for x, y, s in zip(a.reshape(len(a), -1), b.reshape(len(b), -1), similar, strict=True):
        squared = sum((p - q) ** 2 for p, q in zip(x, y, strict=True))
        if s:
            total += squared
        else:
            total += max(margin - squared, 0) if legacy else max(margin - math.sqrt(squared), 0) ** 2
    return total / (2 * len(a))


@pytest.mark.parametrize("shape", [(6, 3), (4, 2, 1, 1), (3,), (1, 1)])
@pytest.mark.parametrize("margin", [None, 0.25, 5])
@pytest.mark.parametrize("legacy", [False, True])
def test_formula_and_gradient(rng, shape, margin, legacy):
    a, b = rng.standard_normal(shape), rng.standard_normal(shape)
    similar = rng.integers(0, 2, (shape[0],))
    text = f"{TYPE} contrastive_loss_param {{ legacy_version: {str(legacy).lower()} "
    text += "}" if margin is None else f"margin: {margin} }}"
    layer, bottom, top = support.build(text, a, b, similar)
    wanted = naive(a, b, similar, 1 if margin is None else margin, legacy)
    assert support.forward(layer, bottom, top)[0] == pytest.approx(wanted)
    # Not legacy: the 1e-4 in the denominator makes the gradient that much smaller than the true one.
    check_gradient(text + " loss_weight: 0.5", a, b, similar, threshold=1e-4 if legacy else 1e-3)


@pytest.mark.parametrize("legacy", ["true", "false"])
def test_identical_pairs_have_a_finite_gradient(legacy):
    layer, bottom, top = support.build(
        f"{TYPE} contrastive_loss_param {{ legacy_version: {legacy} }}",
        np.ones((2, 3)),
        np.ones((2, 3)),
        [0, 1],
    )
    assert support.forward(layer, bottom, top)[0] == pytest.approx(1 / 4)
    da, db, _ = support.backward(layer, bottom, top, 1)
    assert not da.any()
    assert not db.any()


def test_a_fraction_of_similarity_is_cut_off():
    layer, bottom, top = support.build(TYPE, [[0.0]], [[0.25]], [0.9])
    assert support.forward(layer, bottom, top)[0] == pytest.approx(0.75**2 / 2)


def test_an_empty_batch_costs_nothing():
    layer, bottom, top = support.build(TYPE, np.zeros((0, 3)), np.zeros((0, 3)), [])
    assert support.forward(layer, bottom, top) == [0]


def test_the_gradient_of_similarity_is_refused_and_not_forced(rng):
    layer, bottom, top = support.build(TYPE, np.zeros((2, 3)), np.zeros((2, 3)), [0, 1])
    assert [layer.allow_force_backward(i) for i in range(3)] == [True, True, False]
    with pytest.raises(LayerError, match="ContrastiveLoss Layer cannot backpropagate to label inputs"):
        layer.backward(top, [True, True, True], bottom)


@pytest.mark.parametrize(
    "a, b, similar, message",
    [
        ((4, 3, 2, 1), (4, 3, 2, 1), (4,), r"bottom\[0\] must be \(N, C\) or \(N, C, 1, 1\).*\(4, 3, 2, 1\)"),
        ((4, 3), (4, 2), (4,), r"the same channels: .*\(4, 3\).*\(4, 2\)"),
        ((4, 3), (3, 3), (4,), r"same first dimension"),
        ((4, 3), (4, 3), (3,), r"one number for each of 4 pairs.*\(3,\)"),
        ((4, 3), (4, 3), (2, 2), r"one number for each of 4 pairs.*\(2, 2\)"),
    ],
)
def test_shapes_that_do_not_fit(a, b, similar, message):
    with pytest.raises(ShapeError, match=message):
        support.build(TYPE, np.zeros(a), np.zeros(b), np.zeros(similar))
