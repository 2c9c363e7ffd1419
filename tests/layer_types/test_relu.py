from __future__ import annotations

import numpy as np
import pytest

from caffe.gradient_check import check_gradient
from layer_types import support
from layer_types.neuron import check_elementwise, skipped_gradient_leaves_diff, spread

TEXT = 'type: "ReLU" relu_param {{ negative_slope: {} }}'


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("slope", [0, 0.25, 1, 2, -0.5])
def test_formula_and_derivative(slope, dtype):
    check_elementwise(
        TEXT.format(slope),
        spread(-3, 3),
        lambda x: np.where(x > 0, x, slope * x),
        lambda x: np.where(x > 0, 1, slope),
        in_place=slope >= 0,
        dtype=dtype,
    )


@pytest.mark.parametrize("slope", [0, 0.1, -2])
def test_gradient(slope):
    check_gradient(TEXT.format(slope), spread(-1, 1).reshape(4, 6), kinks=[0])


def test_at_zero_the_gradient_is_the_negative_sides():
    layer, bottom, top = support.build(TEXT.format(0.5), [0.0, -0.0])
    support.forward(layer, bottom, top)
    assert support.backward(layer, bottom, top, [2.0, 4.0])[0].tolist() == [1, 2]


def test_infinities_and_nan():
    layer, bottom, top = support.build(TEXT.format(0.5), [np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(support.forward(layer, bottom, top)[0], [np.inf, -np.inf, np.nan])


def test_in_place_with_negative_slope_is_refused_for_training_only():
    layer, _, _ = support.build(TEXT.format(-0.5), [1.0], in_place=True)
    assert "negative_slope (=-0.5)" in layer.in_place_refusal()


def test_without_propagate_down_nothing_is_written():
    skipped_gradient_leaves_diff(TEXT.format(0), [1.0, -1.0])
