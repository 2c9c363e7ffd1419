from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError
from caffe.gradient_check import check_gradient
from layer_types import support
from layer_types.neuron import check_elementwise, skipped_gradient_leaves_diff, spread

TEXT = 'type: "Log" log_param {{ base: {} scale: {} shift: {} }}'
CASES = [(-1, 1, 0), (-1, -0.5, 3), (2, 1.5, 0.75), (10, 2, 0), (0.5, 1, 1)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("base", "scale", "shift"), CASES)
def test_formula_and_derivative(base, scale, shift, dtype):
    b = np.e if base == -1 else float(base)
    check_elementwise(
        TEXT.format(base, scale, shift),
        spread(0.25, 4),
        lambda x: np.log(shift + scale * x) / np.log(b),
        lambda x: scale / (shift + scale * x) / np.log(b),
        False,
        dtype,
    )


def test_defaults_are_the_natural_logarithm():
    layer, bottom, top = support.build('type: "Log"', [np.e])
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], 1)


@pytest.mark.parametrize(("base", "scale", "shift"), CASES)
def test_gradient(base, scale, shift):
    check_gradient(TEXT.format(base, scale, shift), spread(0.5, 2).reshape(4, 6))


@pytest.mark.parametrize("base", [0, -2, 1, "inf", "nan"])
def test_other_bases_are_refused(base):
    with pytest.raises(LayerError, match="log_param.base .*base must be strictly positive"):
        support.build(TEXT.format(base, 1, 0), [1.0])


def test_in_place_is_for_forward_only():
    layer, bottom, top = support.build(TEXT.format(2, 1, 0), [1.0, 8.0], in_place=True)
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], [0, 3])
    assert "needs the bottom's values" in layer.in_place_refusal()


def test_without_propagate_down_nothing_is_written():
    skipped_gradient_leaves_diff(TEXT.format(-1, 1, 0), [1.0, 2.0])
