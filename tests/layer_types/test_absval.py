from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError
from caffe.gradient_check import check_gradient
from layer_types import support
from layer_types.neuron import check_elementwise, skipped_gradient_leaves_diff, spread

TEXT = 'type: "AbsVal"'


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_formula_and_derivative(dtype):
    check_elementwise(TEXT, spread(-3, 3), np.abs, np.sign, False, dtype)


def test_gradient():
    check_gradient(TEXT, spread(-1, 1).reshape(4, 6), kinks=[0])


def test_at_zero_the_gradient_is_zero():
    layer, bottom, top = support.build(TEXT, [0.0])
    support.forward(layer, bottom, top)
    assert support.backward(layer, bottom, top, [2.0])[0].tolist() == [0]


def test_in_place_is_refused():
    with pytest.raises(LayerError, match="AbsVal Layer does not allow in-place computation"):
        support.build(TEXT, [1.0], in_place=True)


def test_without_propagate_down_nothing_is_written():
    skipped_gradient_leaves_diff(TEXT, [1.0, -1.0])
