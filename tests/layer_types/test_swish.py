from __future__ import annotations

import numpy as np
import pytest

from caffe.gradient_check import check_gradient
from layer_types import support
from layer_types.neuron import check_elementwise, skipped_gradient_leaves_diff, spread

TEXT = 'type: "Swish" swish_param {{ beta: {} }}'


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("beta", [1, 0.5, 0, -2])
def test_formula_and_derivative(beta, dtype):
    check_elementwise(
        TEXT.format(beta),
        spread(-4, 4),
        lambda x: x * sigmoid(beta * x),
        lambda x: sigmoid(beta * x) + beta * x * sigmoid(beta * x) * sigmoid(-beta * x),
        True,
        dtype,
    )


def test_beta_defaults_to_one():
    layer, bottom, top = support.build('type: "Swish"', [2.0])
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], 2 * sigmoid(2))


@pytest.mark.parametrize("beta", [1, 1.7])
def test_gradient(beta):
    check_gradient(TEXT.format(beta), spread(-2, 2).reshape(4, 6))


@pytest.mark.filterwarnings("error")
def test_extreme_values_do_not_overflow():
    layer, bottom, top = support.build(TEXT.format(1), [1e4, -1e4], dtype=np.float32)
    assert support.forward(layer, bottom, top)[0].tolist() == [1e4, 0]
    assert support.backward(layer, bottom, top, np.ones(2))[0].tolist() == [1, 0]


def test_reshape_follows_the_bottom():
    layer, bottom, top = support.build(TEXT.format(1), np.ones((2, 3)))
    bottom[0].reshape(4, 5)
    bottom[0].data[...] = 2
    layer.reshape(bottom, top)
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], np.full((4, 5), 2 * sigmoid(2)))


def test_without_propagate_down_nothing_is_written():
    skipped_gradient_leaves_diff(TEXT.format(1), [1.0, -1.0])
