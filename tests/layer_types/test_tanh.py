from __future__ import annotations

import numpy as np
import pytest

from caffe.gradient_check import check_gradient
from layer_types import support
from layer_types.neuron import check_elementwise, skipped_gradient_leaves_diff, spread

TEXT = 'type: "TanH"'


def tanh(x):
    return 1 - 2 / (np.exp(2 * x) + 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_formula_and_derivative(dtype):
    check_elementwise(TEXT, spread(-3, 3), tanh, lambda x: 1 / np.cosh(x) ** 2, True, dtype)


def test_gradient():
    check_gradient(TEXT, spread(-2, 2).reshape(2, 3, 4))


@pytest.mark.filterwarnings("error")
def test_extreme_values_saturate():
    layer, bottom, top = support.build(TEXT, [1e4, -1e4, np.inf, -np.inf], dtype=np.float32)
    assert support.forward(layer, bottom, top)[0].tolist() == [1, -1, 1, -1]
    assert support.backward(layer, bottom, top, np.ones(4))[0].tolist() == [0, 0, 0, 0]


def test_without_propagate_down_nothing_is_written():
    skipped_gradient_leaves_diff(TEXT, [1.0, -1.0])
