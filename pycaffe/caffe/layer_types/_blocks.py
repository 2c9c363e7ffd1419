"""Arrays seen as (outer, D, inner): an operand of D values for each of the blocks in between.

Channels of an (N, C, H, W) blob are (N, C, H·W); one statistic, slope or factor belongs to each of the C.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..blob import Blob
from ..errors import ShapeError
from ..layer import Layer

_ROWS = 4096


def channel_blocks(shape: Sequence[int]) -> tuple[int, int, int]:
    """(N, C, the rest) of a shape; with one axis or none, all elements belong to one channel."""
    if len(shape) < 2:
        return math.prod(shape), 1, 1
    return shape[0], shape[1], math.prod(shape[2:])


def block_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Σ a · b over outer and inner: (outer, D, inner) twice -> (D,) in float64.

    Runs of inner, or of a few thousand rows where inner is 1, are summed in the arrays' own type.
    """
    if a.shape[2] != 1:
        return np.einsum("ods,ods->od", a, b).sum(axis=0, dtype=np.float64)
    return _over_rows(lambda rows: np.einsum("ods,ods->d", a[rows], b[rows]), a)


def block_total(a: np.ndarray) -> np.ndarray:
    """Σ a over outer and inner: (outer, D, inner) -> (D,) in float64, as block_sum."""
    if a.shape[2] != 1:
        return np.einsum("ods->od", a).sum(axis=0, dtype=np.float64)
    return _over_rows(lambda rows: a[rows].sum(axis=(0, 2)), a)


def _over_rows(part: Callable[[slice], np.ndarray], a: np.ndarray) -> np.ndarray:
    total = np.zeros(a.shape[1])
    for start in range(0, a.shape[0], _ROWS):
        total += part(slice(start, start + _ROWS))
    return total


def operand_shape(layer: Layer, bottom: Blob, axis: int, num_axes: int, operand: str) -> tuple[int, ...]:
    """Shape of a learned operand that covers num_axes axes of bottom from axis on (-1: all the rest)."""
    if num_axes < -1:
        raise layer.error(
            f"num_axes (={num_axes}) must be non-negative, or -1 to extend to the end of bottom[0]",
            ShapeError,
        )
    if num_axes == 0:
        return ()
    start = layer.canonical_axis(axis, bottom)
    if num_axes == -1:
        return bottom.shape[start:]
    if start + num_axes > bottom.num_axes:
        raise layer.error(
            f"{operand} blob's shape extends past bottom[0]'s shape when applied starting with bottom[0] "
            f"axis {start}: num_axes is {num_axes}, bottom[0] has the shape {bottom.shape}",
            ShapeError,
        )
    return bottom.shape[start : start + num_axes]


def operand_blocks(
    layer: Layer, bottom: Blob, shape: tuple[int, ...], axis: int, operand: str
) -> tuple[int, int, int]:
    """(outer, D, inner) of bottom for an operand of that shape, laid over it from axis on."""
    start = layer.canonical_axis(axis, bottom) if shape else 0
    end = start + len(shape)
    if end > bottom.num_axes:
        raise layer.error(
            f"{operand} blob's shape extends past bottom[0]'s shape when applied starting with bottom[0] "
            f"axis {start}: the {operand} has the shape {shape}, bottom[0] {bottom.shape}",
            ShapeError,
        )
    for i, (have, want) in enumerate(zip(bottom.shape[start:end], shape, strict=True)):
        if have != want:
            raise layer.error(
                f"dimension mismatch between bottom[0]->shape({start + i}) and {operand}->shape({i}): "
                f"{have} against {want} (bottom[0] has the shape {bottom.shape}, the {operand} {shape})",
                ShapeError,
            )
    return bottom.axis_count(0, start), math.prod(shape), bottom.axis_count(end)
