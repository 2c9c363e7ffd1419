"""Resizing as the original's Python code has it: that of scikit-image and SciPy of its day (0.9 to 0.13).

Neither smooths before it shrinks an image. How this is known: docs/decisions/0020-resizing.md.
"""

from __future__ import annotations

import numpy as np

from .errors import DataError

# One axis of the result: for each of its positions the source's indices and their weights, (taps, n_out).
Taps = tuple[np.ndarray, np.ndarray]


def resize_image_like(image: np.ndarray, height: int, width: int, order: int) -> np.ndarray:
    """scikit-image's resize of (H, W, C): pixels are squares, so that output pixel i has its middle at
    (i + ½)·H/height - ½. Beyond the border is the image's least value, which darkens the border when an
    image grows; the result stays within the image's range. order: 0 nearest, 1 bilinear, 3 bicubic."""
    least, most = image.min(), image.max()
    result = image - least
    for axis, size in enumerate((height, width)):
        middles = (np.arange(size) + 0.5) * (image.shape[axis] / size) - 0.5
        result = _apply(result, axis, _taps(middles, image.shape[axis], order))
    if order > 1:
        np.clip(result, 0, most - least, out=result)
    result += least
    return result


def zoom_array(array: np.ndarray, height: int, width: int, order: int) -> np.ndarray:
    """SciPy's zoom of (H, W, C): the corners' middles stay where they are. order: 0 nearest, 1 bilinear."""
    for axis, size in enumerate((height, width)):
        middles = np.linspace(0, array.shape[axis] - 1, size) if size > 1 else np.zeros(1)
        array = _apply(array, axis, _taps(middles, array.shape[axis], order))
    return array


def _taps(middles: np.ndarray, size: int, order: int) -> Taps:
    if order == 0:
        first, weights = np.floor(middles + 0.5).astype(np.int64), np.ones((1, len(middles)))
    else:
        first = np.floor(middles).astype(np.int64)
        x = middles - first
        if order == 1:
            weights = np.stack([1 - x, x])
        elif order == 3:  # the cubic through two points whose slopes their neighbours give
            first -= 1
            weights = 0.5 * np.stack(
                [
                    x * (-1 + x * (2 - x)),
                    2 + x * x * (3 * x - 5),
                    x * (1 + x * (4 - 3 * x)),
                    x * x * (x - 1),
                ]
            )
        else:
            raise order_error(order, "0 (nearest), 1 (bilinear) or 3 (bicubic)")
    index = first + np.arange(len(weights))[:, None]
    inside = (index >= 0) & (index < size)
    return np.where(inside, index, 0), np.where(inside, weights, 0)


def order_error(order: int, known: str) -> DataError:
    return DataError(
        f"interp_order (={order}) must be {known}. For other splines, resize the image by scipy.ndimage.zoom "
        "first: one that has the wanted size is not resized again"
    )


def _apply(array: np.ndarray, axis: int, taps: Taps) -> np.ndarray:
    shape = [1] * array.ndim
    shape[axis] = -1
    total = None
    for index, weight in zip(*taps, strict=True):
        part = np.take(array, index, axis)
        part *= weight.reshape(shape).astype(array.dtype)
        total = part if total is None else np.add(total, part, out=total)
    return total  # type: ignore[return-value]
