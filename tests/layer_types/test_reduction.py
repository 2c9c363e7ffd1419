from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError
from caffe.gradient_check import check_gradient
from layer_types import support

TEXT = 'type: "Reduction" reduction_param {{ {} }}'
ONE = {"SUM": lambda x: x, "ASUM": abs, "SUMSQ": lambda x: x * x, "MEAN": lambda x: x}
SLOPE = {"SUM": lambda x: 1, "ASUM": np.sign, "SUMSQ": lambda x: 2 * x, "MEAN": lambda x: 1}


@pytest.mark.parametrize("operation", ["SUM", "ASUM", "SUMSQ", "MEAN"])
@pytest.mark.parametrize(
    "shape, axis", [((2, 3, 4), 0), ((2, 3, 4), 1), ((2, 3, 4), -1), ((5,), 0), ((0, 3), 1), ((2, 1), 1)]
)
@pytest.mark.parametrize("coeff", [None, 0.4, -2])
def test_against_one_element_at_a_time(rng, operation, shape, axis, coeff):
    x = rng.standard_normal(shape)
    fields = f"operation: {operation} axis: {axis} " + ("" if coeff is None else f"coeff: {coeff}")
    layer, bottom, top = support.build(TEXT.format(fields), x)
    [y] = support.forward(layer, bottom, top)
    kept = shape[: axis % len(shape)]
    assert y.shape == kept
    diff = rng.standard_normal(kept)
    [dx] = support.backward(layer, bottom, top, diff)
    scale = 1 if coeff is None else coeff
    for place in np.ndindex(*kept):
        values = x[place].ravel()
        share = scale / len(values) if operation == "MEAN" else scale
        assert y[place] == pytest.approx(share * sum(ONE[operation](v) for v in values))
        wanted = [share * diff[place] * SLOPE[operation](v) for v in values]
        np.testing.assert_allclose(dx[place].ravel(), wanted, rtol=1e-6)


def test_the_sum_of_everything_is_the_default():
    layer, bottom, top = support.build('type: "Reduction"', np.ones((2, 3)))
    assert support.forward(layer, bottom, top) == [6]


@pytest.mark.parametrize("operation", ["SUM", "ASUM", "SUMSQ", "MEAN"])
def test_of_nothing_it_is_zero(operation):
    layer, bottom, top = support.build(TEXT.format(f"operation: {operation} axis: 1"), np.zeros((3, 0)))
    assert support.forward(layer, bottom, top)[0].tolist() == [0, 0, 0]
    assert support.backward(layer, bottom, top, [1, 1, 1])[0].shape == (3, 0)


@pytest.mark.parametrize("operation", ["SUM", "ASUM", "SUMSQ", "MEAN"])
def test_gradient(rng, operation):
    x = rng.uniform(0.1, 1, (2, 3, 2)) * rng.choice([-1, 1], (2, 3, 2))
    check_gradient(TEXT.format(f"operation: {operation} axis: 1 coeff: 0.3"), x)
    check_gradient(TEXT.format(f"operation: {operation}") + " loss_weight: 2.5", x)


def test_an_axis_outside():
    with pytest.raises(LayerError, match=r"axis \(=2\) must lie in \[-2, 2\)"):
        support.build(TEXT.format("axis: 2"), np.zeros((2, 3)))
