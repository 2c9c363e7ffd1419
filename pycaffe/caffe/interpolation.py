"""Resizing as the original's Python code has it: that of scikit-image and SciPy of its day (0.9 to 0.13).

Neither smooths before it shrinks an image. How this is known: docs/decisions/0020-resizing.md.
"""

from __future__ import annotations

import math

import numpy as np

from .errors import DataError

# What middles of pixels may be off by, so that one on the border is not beyond it.
_ROUNDING = 1e-9

# One axis of the result: for each of its positions the source's indices and their weights, (taps, n_out).
Taps = tuple[np.ndarray, np.ndarray]


def resize_image_like(image: np.ndarray, height: int, width: int, order: int) -> np.ndarray:
    """scikit-image's resize of (H, W, C): pixels are squares, so that output pixel i has its middle at
    (i + ½)·H/height - ½. Beyond the border is the image's least value, which darkens the border when an
    image grows; the result stays within the image's range. order: 0 nearest, 1 bilinear, 3 bicubic; 2, 4 and
    5 are SciPy's splines, whose pixels with a middle beyond the outermost ones are that least value."""
    order = _checked(order)
    least, most = image.min(), image.max()
    result = image - least
    for axis, size in enumerate((height, width)):
        middles = (np.arange(size) + 0.5) * (image.shape[axis] / size) - 0.5
        result = _resample(result, axis, middles, order, spline=order in (2, 4, 5))
    if order > 1:
        np.clip(result, 0, most - least, out=result)
    result += least
    return result


def zoom_array(array: np.ndarray, height: int, width: int, order: int) -> np.ndarray:
    """SciPy's zoom of (H, W, C): the corners' middles stay where they are. order: 0 nearest, 1 bilinear, 2 to
    5 splines."""
    order = _checked(order)
    for axis, size in enumerate((height, width)):
        middles = np.linspace(0, array.shape[axis] - 1, size) if size > 1 else np.zeros(1)
        array = _resample(array, axis, middles, order, spline=order > 1)
    return array


def _checked(order: float) -> int:
    if order not in range(6):
        raise DataError(
            f"interp_order (={order}) must be 0 (nearest), 1 (bilinear), 3 (bicubic), or 2, 4 or 5 (splines)"
        )
    return int(order)


def _resample(array: np.ndarray, axis: int, middles: np.ndarray, order: int, spline: bool) -> np.ndarray:
    size = array.shape[axis]
    if spline:
        return _apply(_spline_coefficients(array, axis, order), axis, _spline_taps(middles, size, order))
    return _apply(array, axis, _taps(middles, size, order))


def _taps(middles: np.ndarray, size: int, order: int) -> Taps:
    if order == 0:
        first, weights = np.floor(middles + 0.5).astype(np.int64), np.ones((1, len(middles)))
    else:
        first = np.floor(middles).astype(np.int64)
        x = middles - first
        if order == 1:
            weights = np.stack([1 - x, x])
        else:  # the cubic through two points whose slopes their neighbours give
            first -= 1
            weights = 0.5 * np.stack(
                [
                    x * (-1 + x * (2 - x)),
                    2 + x * x * (3 * x - 5),
                    x * (1 + x * (4 - 3 * x)),
                    x * x * (x - 1),
                ]
            )
    index = first + np.arange(len(weights))[:, None]
    inside = (index >= 0) & (index < size)
    return np.where(inside, index, 0), np.where(inside, weights, 0)


# -- splines ----------------------------------------------------------------------------------------------


def _b_spline(order: int, x: np.ndarray) -> np.ndarray:
    """The centred B-spline of this order: a sum of truncated powers."""
    knots = np.arange(order + 2)
    signs = [(-1) ** k * math.comb(order + 1, k) / math.factorial(order) for k in knots]
    return np.maximum(x[..., None] + (order + 1) / 2 - knots, 0) ** order @ np.array(signs)


def _spline_taps(middles: np.ndarray, size: int, order: int) -> Taps:
    """The border is a mirror; a middle beyond it has no taps."""
    first = np.floor(middles + (0 if order % 2 else 0.5)).astype(np.int64) - order // 2
    index = first + np.arange(order + 1)[:, None]
    weights = _b_spline(order, middles - index)
    period = max(2 * size - 2, 1)
    index %= period
    inside = (middles >= -_ROUNDING) & (middles <= size - 1 + _ROUNDING)
    return np.minimum(index, period - index) % size, np.where(inside, weights, 0)


def _spline_coefficients(array: np.ndarray, axis: int, order: int) -> np.ndarray:
    """Coefficients whose spline goes through the array's values along an axis, float64: for each pole of the
    inverse of the B-spline's samples a filter forward and one back, whose beginnings know the mirror."""
    values = np.moveaxis(array.astype(np.float64), axis, 0)
    size = len(values)
    if size == 1:
        return np.moveaxis(values, 0, axis)
    samples = _b_spline(order, np.arange(-(order // 2), order // 2 + 1.0))
    for pole in (z.real for z in np.roots(samples) if abs(z) < 1):
        values *= (1 - pole) * (1 - 1 / pole)
        start = pole ** np.arange(size) + pole ** np.arange(2.0 * size - 2, size - 2, -1)
        start[[0, -1]] = 1, pole ** (size - 1)
        values[0] = np.tensordot(start, values, 1) / (1 - pole ** (2 * size - 2))
        for k in range(1, size):
            values[k] += pole * values[k - 1]
        values[-1] = (pole * values[-2] + values[-1]) * pole / (pole * pole - 1)
        for k in range(size - 2, -1, -1):
            values[k] = pole * (values[k + 1] - values[k])
    return np.moveaxis(values, 0, axis)


def _apply(array: np.ndarray, axis: int, taps: Taps) -> np.ndarray:
    shape = [1] * array.ndim
    shape[axis] = -1
    total = None
    for index, weight in zip(*taps, strict=True):
        part = np.take(array, index, axis)
        part *= weight.reshape(shape).astype(array.dtype)
        total = part if total is None else np.add(total, part, out=total)
    return total  # type: ignore[return-value]
