"""What every element-wise layer must pass, given its formula and its derivative."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from layer_types import support

SHAPES = [(24,), (2, 12), (2, 3, 4), (2, 1, 3, 1, 4), (0, 3)]


def check_elementwise(
    text: str,
    x: np.ndarray,
    function: Callable[[np.ndarray], np.ndarray],
    derivative: Callable[[np.ndarray], np.ndarray],
    in_place: bool,
    dtype: type = np.float64,
) -> None:
    """top = function(x), bottom diff = top diff · derivative(x): for several shapes of the 24 elements
    of x and for a scalar, in place too if that is allowed, and without a warning from NumPy."""
    x = np.asarray(x, np.float64)
    assert x.size == 24
    dy = np.random.default_rng(5).standard_normal(24)
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype is np.float32 else {"rtol": 1e-10, "atol": 1e-12}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for shape in [*SHAPES, ()]:
            count = int(np.prod(shape))
            values, diffs = x[:count].reshape(shape), dy[:count].reshape(shape)
            for same in (False, True) if in_place else (False,):
                layer, bottom, top = support.build(text, values, dtype=dtype, in_place=same)
                assert top[0].shape == shape
                [y] = support.forward(layer, bottom, top)
                np.testing.assert_allclose(y, function(values), **tolerance)
                assert y.dtype == dtype
                if not same:
                    np.testing.assert_array_equal(bottom[0].cpu_data(), values.astype(dtype))
                [dx] = support.backward(layer, bottom, top, diffs)
                np.testing.assert_allclose(dx, diffs * derivative(values), **tolerance)
            if in_place and count:
                assert not layer.in_place_refusal()


def spread(low: float, high: float, seed: int = 7) -> np.ndarray:
    """24 values between low and high in random order, none of them exactly 0."""
    values = np.linspace(low, high, 24)
    values[values == 0] = 0.3 * (high - low) / 23
    return np.random.default_rng(seed).permutation(values)


def skipped_gradient_leaves_diff(text: str, x: np.ndarray) -> None:
    """backward with propagate_down false must not write the bottom's diff."""
    layer, bottom, top = support.build(text, x)
    support.forward(layer, bottom, top)
    bottom[0].diff[...] = 7
    layer.backward(top, [False], bottom)
    assert (bottom[0].diff == 7).all()
