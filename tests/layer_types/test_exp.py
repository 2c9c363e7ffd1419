from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError
from caffe.gradient_check import check_gradient
from layer_types import support
from layer_types.neuron import check_elementwise, skipped_gradient_leaves_diff, spread

TEXT = 'type: "Exp" exp_param {{ base: {} scale: {} shift: {} }}'
CASES = [(-1, 1, 0), (-1, -0.5, 0.25), (2, 1.5, -0.75), (0.5, 1, 0), (1, 2, 3), (10, 0, 2)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("base", "scale", "shift"), CASES)
def test_formula_and_derivative(base, scale, shift, dtype):
    b = np.e if base == -1 else float(base)
    check_elementwise(
        TEXT.format(base, scale, shift),
        spread(-2, 2),
        lambda x: b ** (shift + scale * x),
        lambda x: np.log(b) * scale * b ** (shift + scale * x),
        True,
        dtype,
    )


def test_defaults_are_the_natural_exponential():
    layer, bottom, top = support.build('type: "Exp"', [1.0])
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], np.e)


@pytest.mark.parametrize(("base", "scale", "shift"), CASES)
def test_gradient(base, scale, shift):
    check_gradient(TEXT.format(base, scale, shift), spread(-1, 1).reshape(4, 6))


def test_shift_that_would_underflow_by_itself():
    layer, bottom, top = support.build(TEXT.format(-1, 1, -200), [201.0], dtype=np.float32)
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], np.e, rtol=1e-4)


@pytest.mark.parametrize("base", [0, -2, "inf", "nan"])
def test_other_bases_are_refused(base):
    with pytest.raises(LayerError, match="exp_param.base .*base must be strictly positive"):
        support.build(TEXT.format(base, 1, 0), [1.0])


def test_without_propagate_down_nothing_is_written():
    skipped_gradient_leaves_diff(TEXT.format(-1, 1, 0), [1.0, -1.0])
