"""PReLU, in whatever layout the bottom lies."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from ...layer import Layer
from .base import Argument, Call, OneDNNKernel, first_fast, no_post
from .layouts import MemoryDesc, blocked, plain
from .normalization import Kept
from .place import PLACE, Operand
from .primitives import (
    DIFF_DST,
    DIFF_SRC,
    DIFF_WEIGHTS,
    DST,
    FORWARD_TRAINING,
    SRC,
    WEIGHTS,
    Buffer,
    Memory,
    PrimitiveDesc,
)


@functools.lru_cache(maxsize=1024)
def _find(layout: MemoryDesc, slopes: MemoryDesc) -> tuple[PrimitiveDesc, PrimitiveDesc] | None:
    """Forward and backward, or None where one of them is slow."""
    forward = first_fast(
        [lambda: PrimitiveDesc("prelu_forward", FORWARD_TRAINING, layout, slopes, layout, no_post())]
    )
    if forward is None:
        return None
    hint = forward
    backward = first_fast(
        [lambda: PrimitiveDesc("prelu_backward", layout, slopes, layout, slopes, layout, hint, no_post())]
    )
    return None if backward is None else (forward, backward)


def _layouts(bottom: Blob) -> tuple[MemoryDesc, MemoryDesc]:
    """Of the bottom and of the slopes."""
    layout = PLACE.home(bottom)
    shape = (1, bottom.shape[1], *[1] * (bottom.num_axes - 2))
    return layout, blocked(shape) if layout.key[4] else plain(shape)


@kernel("PReLU", engine="onednn")
class PReLUKernel(OneDNNKernel):
    """A slope that channels share counts as one for each of them."""

    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        return (
            super().supports(layer, bottom)
            and bottom[0].num_axes >= 2
            and _find(*_layouts(bottom[0])) is not None
        )

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer: Any = self.layer
        self._layout, self._slopes = _layouts(bottom[0])
        layout, slopes = self._layout, self._slopes
        found = _find(layout, slopes)
        assert found is not None  # supports asked
        self._backward_desc = found[1]
        self.top_homes = [layout]
        self.settle(top)
        blob, channels = layer.blobs[0], bottom[0].shape[1]
        # As many slopes as the layout holds are read where they are.
        self._copy: np.ndarray | None = None
        self._weights: Argument
        if blob.count == channels and slopes.nbytes == 4 * channels:
            self._weights = Operand(blob, "data", slopes, "read", on_host=True)
        else:
            buffer = Buffer(slopes.nbytes)
            self._copy, self._weights = buffer.floats[:channels], Memory(slopes, buffer)
        self._kept: Kept | None = None
        keep = any(layer.param_propagate_down) or any(self.propagate_down)
        if keep and bottom[0].data_mem is top[0].data_mem:
            self._kept = Kept(bottom[0], layout)
        self._source: Argument = (
            Operand(bottom[0], "data", layout, "read") if self._kept is None else self._kept.memory
        )
        self.repeatable = self._copy is None and self._kept is None
        target = Operand(top[0], "data", layout, "write")
        self._forward = Call(run, found[0], {SRC: self._source, WEIGHTS: self._weights, DST: target})

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._lay_slopes()
        if self._kept is not None:
            self._kept.take()
        self._forward()

    def _lay_slopes(self) -> None:
        if self._copy is not None:
            self._copy[...] = self.layer.blobs[0].cpu_data().reshape(-1)

    def prepare_backward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layout, slopes = self._layout, self._slopes
        buffer = Buffer(slopes.nbytes)
        self._gradient = buffer.floats[: bottom[0].shape[1]]
        target: Argument = Operand(bottom[0], "diff", layout, "write")
        if not any(self.propagate_down):
            target = Memory(layout, Buffer(layout.nbytes))
        arguments: dict[int, Argument] = {
            SRC: self._source,
            WEIGHTS: self._weights,
            DIFF_DST: Operand(top[0], "diff", layout, "read"),
            DIFF_SRC: target,
            DIFF_WEIGHTS: Memory(slopes, buffer),
        }
        self._backward = Call(run, self._backward_desc, arguments)

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        wanted = self.layer.param_propagate_down[0]
        if not (wanted or propagate_down[0]):
            return
        self._lay_slopes()
        self._backward()
        if wanted:
            slopes = self.layer.blobs[0]
            diff = slopes.mutable_cpu_diff()
            diff += self._gradient.reshape(slopes.shape) if slopes.shape else self._gradient.sum()
