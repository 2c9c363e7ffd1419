from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError
from caffe.gradient_check import check_gradient
from layer_types import support
from layer_types.neuron import check_elementwise, skipped_gradient_leaves_diff, spread

TEXT = 'type: "Clip" clip_param {{ min: {} max: {} }}'


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("low", "high"), [(-1, 1.5), (-3, -0.5), (0.25, 0.75)])
def test_formula_and_derivative(low, high, dtype):
    check_elementwise(
        TEXT.format(low, high),
        spread(-2, 2),
        lambda x: np.where(x < low, low, np.where(x > high, high, x)),
        lambda x: ((low <= x) & (x <= high)).astype(float),
        False,
        dtype,
    )


def test_gradient():
    check_gradient(TEXT.format(-1, 1.5), spread(-2, 2).reshape(4, 6), kinks=[-1, 1.5])


def test_at_the_bounds_the_gradient_passes():
    layer, bottom, top = support.build(TEXT.format(-1, 2), [-1.0, 2.0, -1.5, 2.5])
    assert support.forward(layer, bottom, top)[0].tolist() == [-1, 2, -1, 2]
    assert support.backward(layer, bottom, top, [3.0, 4.0, 5.0, 6.0])[0].tolist() == [3, 4, 0, 0]


@pytest.mark.parametrize(("text", "field"), [("max: 1", "min"), ("min: 1", "max"), ("", "min")])
def test_missing_bound_is_refused(text, field):
    with pytest.raises(LayerError, match=f"clip_param.{field} must be given"):
        support.build(f'type: "Clip" clip_param {{ {text} }}', [1.0])


def test_in_place_is_for_forward_only():
    layer, bottom, top = support.build(TEXT.format(-1, 1), [-3.0, 0.5, 3.0], in_place=True)
    assert support.forward(layer, bottom, top)[0].tolist() == [-1, 0.5, 1]
    assert "needs the bottom's values" in layer.in_place_refusal()


def test_without_propagate_down_nothing_is_written():
    skipped_gradient_leaves_diff(TEXT.format(-1, 1), [1.0, -1.0])
