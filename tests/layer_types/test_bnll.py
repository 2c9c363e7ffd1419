from __future__ import annotations

import numpy as np
import pytest

from caffe.gradient_check import check_gradient
from layer_types import support
from layer_types.neuron import check_elementwise, skipped_gradient_leaves_diff, spread

TEXT = 'type: "BNLL"'


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_formula_and_derivative(dtype):
    check_elementwise(
        TEXT, spread(-8, 8), lambda x: np.log(1 + np.exp(x)), lambda x: 1 / (1 + np.exp(-x)), False, dtype
    )


def test_gradient():
    check_gradient(TEXT, spread(-3, 3).reshape(2, 3, 4))


@pytest.mark.filterwarnings("error")
def test_extreme_values_do_not_overflow():
    layer, bottom, top = support.build(TEXT, [1e4, -1e4, 200, -60], dtype=np.float32)
    np.testing.assert_allclose(
        support.forward(layer, bottom, top)[0], [1e4, 0, 200, np.exp(-60.0)], rtol=1e-5
    )
    np.testing.assert_allclose(support.backward(layer, bottom, top, np.ones(4))[0], [1, 0, 1, 0], atol=1e-6)


def test_in_place_is_for_forward_only():
    layer, bottom, top = support.build(TEXT, [1.0, -2.0], in_place=True)
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], np.log1p(np.exp([1.0, -2.0])))
    assert "needs the bottom's values" in layer.in_place_refusal()


def test_without_propagate_down_nothing_is_written():
    skipped_gradient_leaves_diff(TEXT, [1.0, -1.0])
