from __future__ import annotations

import math

import numpy as np
import pytest

from caffe.errors import LabelError, LayerError, ShapeError
from caffe.gradient_check import check_gradient
from layer_types import support

TYPE = 'type: "MultinomialLogisticLoss"'


@pytest.mark.parametrize("shape", [(5, 4), (3, 2, 1, 2), (1, 1)])
def test_formula_and_gradient(rng, shape):
    p = rng.uniform(0.1, 1, shape)
    labels = rng.integers(0, int(np.prod(shape[1:])), (shape[0], 1, 1, 1))
    layer, bottom, top = support.build(TYPE, p, labels)
    rows = p.reshape(len(p), -1)
    wanted = -sum(math.log(row[k]) for row, k in zip(rows, labels.ravel(), strict=True)) / len(p)
    assert support.forward(layer, bottom, top)[0] == pytest.approx(wanted)
    check_gradient(TYPE, p, labels)


def test_certainty_costs_nothing():
    layer, bottom, top = support.build(TYPE, [[0.0, 1.0]], [1])
    loss = support.forward(layer, bottom, top)[0]
    assert loss == 0 and not np.signbit(loss)  # logs say 0, not -0


def test_small_probabilities_count_as_1e_20():
    layer, bottom, top = support.build(TYPE, [[0.0, 1.0]], [0])
    assert support.forward(layer, bottom, top)[0] == pytest.approx(-math.log(1e-20))
    np.testing.assert_allclose(support.backward(layer, bottom, top, 0.5)[0], [[-0.5e20, 0]])


def test_an_empty_batch_costs_nothing():
    layer, bottom, top = support.build(TYPE, np.zeros((0, 3)), [])
    assert support.forward(layer, bottom, top) == [0]


def test_a_label_outside_the_classes():
    layer, bottom, top = support.build(TYPE, np.ones((2, 3)), [-2, 0])
    with pytest.raises(
        LabelError, match=r"label at position \[0\] of bottom\[1\] \(=-2\) lies outside \[0, 3\)"
    ):
        layer.forward(bottom, top)


def test_the_gradient_of_labels_is_refused():
    layer, bottom, top = support.build(TYPE, np.ones((2, 3)), [0, 1])
    with pytest.raises(
        LayerError, match="MultinomialLogisticLoss Layer cannot backpropagate to label inputs"
    ):
        layer.backward(top, [True, True], bottom)


def test_one_label_per_item():
    with pytest.raises(ShapeError, match=r"one label for each of the 2 items"):
        support.build(TYPE, np.ones((2, 3)), np.zeros((2, 2)))
