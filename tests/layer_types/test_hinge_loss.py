from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LabelError, LayerError, ShapeError
from caffe.gradient_check import check_gradient
from layer_types import support

TEXT = 'type: "HingeLoss" hinge_loss_param {{ norm: {} }}'


def naive(scores, labels, power):
    total = 0.0
    for row, label in zip(scores.reshape(len(scores), -1), labels, strict=True):
        for k, t in enumerate(row):
            total += max(0, 1 - (t if k == label else -t)) ** power
    return total / len(scores)


@pytest.mark.parametrize("norm, power", [("L1", 1), ("L2", 2)])
@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 1, 1), (3, 2, 3), (2, 1)])
@pytest.mark.parametrize("label_shape", [(-1,), (-1, 1, 1)])
def test_formula_and_gradient(rng, norm, power, shape, label_shape):
    # Away from the kinks at 1 and -1.
    scores = rng.choice([-2.0, -0.5, 0.3, 1.7], shape) + rng.uniform(-0.1, 0.1, shape)
    labels = rng.integers(0, int(np.prod(shape[1:])), shape[0])
    layer, bottom, top = support.build(TEXT.format(norm), scores, labels.reshape(label_shape))
    assert support.forward(layer, bottom, top)[0] == pytest.approx(naive(scores, labels, power))
    check_gradient(TEXT.format(norm) + " loss_weight: 2", scores, labels.reshape(label_shape))


def test_the_norm_is_l1_by_default(rng):
    scores, labels = rng.standard_normal((3, 4)), [0, 1, 3]
    layer, bottom, top = support.build('type: "HingeLoss"', scores, labels)
    assert support.forward(layer, bottom, top)[0] == pytest.approx(naive(scores, labels, 1))


def test_on_the_margin_there_is_no_gradient():
    layer, bottom, top = support.build('type: "HingeLoss"', [[1.0, -1.0, 0.0]], [0])
    assert support.forward(layer, bottom, top) == [1]
    assert support.backward(layer, bottom, top, 1)[0].tolist() == [[0, 0, 1]]


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_backward_may_be_repeated(rng, norm):
    layer, bottom, top = support.build(TEXT.format(norm), rng.standard_normal((3, 4)), [0, 1, 3])
    support.forward(layer, bottom, top)
    bottom[0].diff[...] = 7  # a diff written in between is lost
    first = support.backward(layer, bottom, top, 1)[0]
    np.testing.assert_array_equal(support.backward(layer, bottom, top, 1)[0], first)


def test_an_empty_batch_costs_nothing():
    layer, bottom, top = support.build('type: "HingeLoss"', np.zeros((0, 3)), [])
    assert support.forward(layer, bottom, top) == [0]


def test_a_label_outside_the_classes():
    layer, bottom, top = support.build('type: "HingeLoss"', np.zeros((2, 3)), [0, 3])
    with pytest.raises(
        LabelError, match=r"label at position \[1\] of bottom\[1\] \(=3\) lies outside \[0, 3\)"
    ):
        layer.forward(bottom, top)


def test_the_gradient_of_labels_is_refused():
    layer, bottom, top = support.build('type: "HingeLoss"', np.zeros((2, 3)), [0, 1])
    with pytest.raises(LayerError, match="HingeLoss Layer cannot backpropagate to label inputs"):
        layer.backward(top, [True, True], bottom)


def test_one_label_per_item():
    with pytest.raises(ShapeError, match=r"one label for each of the 2 items .*\(2, 3\)"):
        support.build('type: "HingeLoss"', np.zeros((2, 3)), np.zeros((2, 3)))
