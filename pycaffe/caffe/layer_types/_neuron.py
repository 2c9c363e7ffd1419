"""What element-wise layers have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer import Layer


class NeuronLayer(Layer):
    """One bottom, one top of the same shape, each element computed from its counterpart.

    top may be bottom (in place); then their diffs are one array, too. So backward must not write
    bottom's diff before it has read top's.
    """

    exact_num_bottom = 1
    exact_num_top = 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape_like(bottom[0])

    def scratch(self, like: np.ndarray, use: str = "elements") -> np.ndarray:
        """Memory of like's shape and type for use within one pass."""
        return self.run.scratch(use, like.shape, like.dtype)

    def mask(self, like: np.ndarray) -> np.ndarray:
        """Booleans of like's shape for use within one pass."""
        return self.run.scratch("mask", like.shape, bool)


def memory(before: np.ndarray | None, shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
    """before, if it is of this shape and type, else new memory: for what forward keeps for backward.

    So a reshape that changes nothing keeps what is there, and costs nothing.
    """
    if before is not None and before.shape == shape and before.dtype == dtype:
        return before
    return np.empty(shape, dtype)


def in_place(bottom: Sequence[Blob], top: Sequence[Blob]) -> bool:
    """Are the first bottom and the first top one array?"""
    return bottom[0].data_mem is top[0].data_mem


def sigmoid(x: np.ndarray, out: np.ndarray) -> None:
    """1/(1 + exp(-x)), written as a tanh, which cannot overflow."""
    np.multiply(x, 0.5, out=out)
    np.tanh(out, out=out)
    out *= 0.5
    out += 0.5
