from __future__ import annotations

import numpy as np
import pytest

from caffe.gradient_check import check_gradient
from layer_types import support
from layer_types.neuron import check_elementwise, skipped_gradient_leaves_diff, spread

TEXT = 'type: "ELU" elu_param {{ alpha: {} }}'


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("alpha", [1, 0.5, 0, 3, -0.5])
def test_formula_and_derivative(alpha, dtype):
    check_elementwise(
        TEXT.format(alpha),
        spread(-3, 3),
        lambda x: np.where(x > 0, x, alpha * np.expm1(x)),
        lambda x: np.where(x > 0, 1, alpha * np.exp(x)),
        in_place=alpha >= 0,
        dtype=dtype,
    )


def test_alpha_defaults_to_one():
    layer, bottom, top = support.build('type: "ELU"', [-1.0])
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], np.exp(-1) - 1)


@pytest.mark.parametrize("alpha", [1, 0.3, -2])
def test_gradient(alpha):
    check_gradient(TEXT.format(alpha), spread(-2, 2).reshape(4, 6), kinks=[0])


@pytest.mark.filterwarnings("error")
def test_extreme_values_do_not_overflow():
    layer, bottom, top = support.build(TEXT.format(1), [1e4, -1e4], dtype=np.float32)
    assert support.forward(layer, bottom, top)[0].tolist() == [1e4, -1]
    assert support.backward(layer, bottom, top, np.ones(2))[0].tolist() == [1, 0]


def test_in_place_with_negative_alpha_is_refused_for_training_only():
    layer, _, _ = support.build(TEXT.format(-0.5), [1.0], in_place=True)
    assert "alpha (=-0.5)" in layer.in_place_refusal()


def test_without_propagate_down_nothing_is_written():
    skipped_gradient_leaves_diff(TEXT.format(1), [1.0, -1.0])
