from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import ShapeError
from caffe.gradient_check import check_gradient
from layer_types import support

TYPE = 'type: "EuclideanLoss"'


@pytest.mark.parametrize(
    "shape, other", [((4, 5), (4, 5)), ((2, 3, 2, 2), (2, 12)), ((3, 1), (3,)), ((1,), (1, 1))]
)
def test_formula_and_gradient(rng, shape, other):
    a, b = rng.standard_normal(shape), rng.standard_normal(other)
    layer, bottom, top = support.build(TYPE, a, b)
    d = a - b.reshape(shape)
    assert support.forward(layer, bottom, top)[0] == pytest.approx(
        sum(x * x for x in d.ravel()) / (2 * len(a))
    )
    da, db = support.backward(layer, bottom, top, 0.5)
    np.testing.assert_allclose(da, 0.5 * d / len(a))
    np.testing.assert_allclose(db, (-0.5 * d / len(a)).reshape(other))
    check_gradient(TYPE, a, b)


def test_only_the_gradient_asked_for_is_written():
    layer, bottom, top = support.build(TYPE, [[1.0]], [[3.0]])
    support.forward(layer, bottom, top)
    top[0].diff[...] = 1
    bottom[0].diff[...] = 7
    layer.backward(top, [False, True], bottom)
    assert (bottom[0].diff.item(), bottom[1].diff.item()) == (7, 2)


def test_an_empty_batch_costs_nothing():
    layer, bottom, top = support.build(TYPE, np.zeros((0, 3)), np.zeros((0, 3)))
    assert support.forward(layer, bottom, top) == [0]


@pytest.mark.parametrize("a, b", [((4, 3), (4, 2)), ((4, 3), (4,)), ((4, 3), (3, 4)), ((), ())])
def test_unlike_shapes_are_both_named(a, b):
    with pytest.raises(ShapeError, match="the same (first )?dimension") as caught:
        support.build(TYPE, np.zeros(a), np.zeros(b))
    assert str(a) in str(caught.value)
    assert str(b) in str(caught.value)
