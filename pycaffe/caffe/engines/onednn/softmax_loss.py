"""SoftmaxWithLoss: the softmax by oneDNN, in a layout in which the classes of a position lie together; loss
and gradient of what it gives in NumPy, which touch one class of each position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from ...layer import Layer
from ...synced_mem import SyncedMem
from .base import Call, OneDNNKernel, reorder_desc
from .layouts import MemoryDesc, blocked, plain, strided
from .place import PLACE, Operand
from .primitives import DST, SRC, Buffer, Memory
from .softmax import find_softmax

# Probabilities below the smallest normal float32 count as this, as in the layer.
_FLOOR = np.finfo(np.float32).tiny


def innermost(shape: Sequence[int], axis: int) -> MemoryDesc:
    """C order, but for an axis that is the innermost."""
    strides, step = [0] * len(shape), 1
    for k in (axis, *(k for k in reversed(range(len(shape))) if k != axis)):
        strides[k], step = step, step * shape[k]
    return strided(shape, strides)


class Scores:
    """How scores lie, for softmax and for NumPy.

    layout, axis: where oneDNN works, and the softmax's axis there. first: where in memory the first class of
    each position stands.
    """

    def __init__(self, blob: Blob, axis: int, blocks: tuple[int, int, int]):
        outer, classes, inner = blocks
        home = PLACE.home(blob)
        self.axis, self._block = 1, classes
        if not home.plain and axis == 1 and home is blocked(blob.shape):
            self.layout, self._block = home, home.key[4][0][1]
        elif inner == 1:
            self.layout = plain((outer, classes))
        else:
            self.layout, self.axis = innermost(blob.shape, axis), axis
        count = -(-classes // self._block)
        self._shape = (outer, count, inner, self._block)
        pitch = inner * self._block
        first = np.arange(outer)[:, None] * (count * pitch) + np.arange(inner) * self._block
        self.first = first.reshape(-1)
        every = np.arange(classes)
        self._offset = every // self._block * pitch + every % self._block

    def index(self, classes: np.ndarray) -> np.ndarray:
        """Where in memory each position's number for its class stands."""
        return self.first + self._offset[classes]

    def by_position(self, memory: np.ndarray) -> np.ndarray:
        """(O, I, blocks of classes, classes of a block)"""
        return memory.reshape(self._shape).swapaxes(1, 2)

    def written(self, mem: SyncedMem) -> np.ndarray:
        """An array's memory in this layout, to be overwritten wholly."""
        if self.layout.plain:
            return mem.write()[: mem.size]
        return mem.write_in(PLACE, self.layout).floats[: math.prod(self._shape)]


@kernel("SoftmaxWithLoss", engine="onednn")
class SoftmaxWithLossKernel(OneDNNKernel):
    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        if not super().supports(layer, bottom):
            return False
        scores = cls._scores_of(layer, bottom[0])
        return find_softmax(scores.layout, scores.axis) is not None

    @staticmethod
    def _scores_of(layer: Any, bottom: Blob) -> Scores:
        axis = bottom.canonical_axis(layer.layer_param.softmax_param.axis)
        return Scores(bottom, axis, layer.score_blocks)

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._scores = scores = self._scores_of(self.layer, bottom[0])
        layout = scores.layout
        found = find_softmax(layout, scores.axis)
        assert found is not None  # supports asked
        self.top_homes = [plain(()), PLACE.home(bottom[0])][: len(top)]
        self.settle(top)
        buffer = Buffer(layout.nbytes)
        probabilities = Memory(layout, buffer)
        self._prob = buffer.floats[: layout.nbytes // 4]
        source = Operand(bottom[0], "data", layout, "read", on_host=layout.plain)
        self._softmax = Call(run, found[0], {SRC: source, DST: probabilities})
        self._show: Call | None = None
        if len(top) > 1:
            target = Operand(top[1], "data", layout, "write", on_host=layout.plain)
            self._show = Call(run, reorder_desc(layout, layout), {SRC: probabilities, DST: target})
        self._index, self._ignored = scores.first, None

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer: Any = self.layer
        self._softmax()
        if self._show is not None:
            self._show()
        labels, counted = layer.read_labels(bottom[1])
        self._index = self._scores.index(labels)
        likelihood = self._prob[self._index]
        self._ignored = None
        if counted is not None:
            likelihood = likelihood[counted]
            self._ignored = ~counted if likelihood.size < counted.size else None
        np.maximum(likelihood, _FLOOR, out=likelihood)
        # From 0: a loss of nothing is 0, not -0.
        total = 0 - np.log(likelihood, out=likelihood).sum()
        top[0].overwrite_cpu_data()[...] = total / layer.divisor

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        layer: Any = self.layer
        layer.refuse_label_gradient(propagate_down)
        if not propagate_down[0]:
            return
        scale = top[0].cpu_diff().item() / layer.divisor
        diff = self._scores.written(bottom[0].diff_mem)
        np.multiply(self._prob, scale, out=diff)
        diff[self._index] -= scale
        if self._ignored is not None:
            positions = self._scores.by_position(diff)
            positions[self._ignored.reshape(positions.shape[:2])] = 0
