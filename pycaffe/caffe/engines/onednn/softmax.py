"""Softmax: along the channels of blobs in the blocked layout, or along the last axis of plain ones."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from ...layer import Layer
from .base import Call, OneDNNKernel, first_fast, no_post
from .layouts import MemoryDesc, plain
from .place import PLACE, Operand
from .primitives import DIFF_DST, DIFF_SRC, DST, FORWARD_TRAINING, SOFTMAX_ACCURATE, SRC, PrimitiveDesc


@functools.lru_cache(maxsize=1024)
def find_softmax(layout: MemoryDesc, axis: int = 1) -> tuple[PrimitiveDesc, PrimitiveDesc] | None:
    """Forward and backward along an axis, or None where one of them is slow."""
    forward = first_fast(
        [
            lambda: PrimitiveDesc(
                "softmax_forward", FORWARD_TRAINING, SOFTMAX_ACCURATE, layout, layout, axis, no_post()
            )
        ]
    )
    if forward is None:
        return None
    hint = forward
    backward = first_fast(
        [
            lambda: PrimitiveDesc(
                "softmax_backward", SOFTMAX_ACCURATE, layout, layout, layout, axis, hint, no_post()
            )
        ]
    )
    return None if backward is None else (forward, backward)


def softmax_layout(blob: Blob, axis: int) -> MemoryDesc | None:
    """A layout of this blob in which oneDNN is fast, the softmax's axis being the second; None where there is
    none."""
    home = PLACE.home(blob)
    axis %= blob.num_axes
    if not home.plain:
        return home if axis == 1 and find_softmax(home) is not None else None
    if blob.axis_count(axis + 1) != 1:
        return None
    layout = plain((blob.axis_count(0, axis), blob.shape[axis]))
    return layout if find_softmax(layout) is not None else None


@kernel("Softmax", engine="onednn")
class SoftmaxKernel(OneDNNKernel):
    repeatable = True

    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        axis = layer.layer_param.softmax_param.axis
        return super().supports(layer, bottom) and softmax_layout(bottom[0], axis) is not None

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layout = softmax_layout(bottom[0], self.layer.layer_param.softmax_param.axis)
        assert layout is not None  # supports asked
        found = find_softmax(layout)
        assert found is not None
        self.top_homes = [PLACE.home(bottom[0])]
        self.settle(top)
        host = layout.plain

        def operand(blob: Blob, which: str, mode: str) -> Operand:
            return Operand(blob, which, layout, mode, on_host=host)

        forward: dict[int, Any] = {
            SRC: operand(bottom[0], "data", "read"),
            DST: operand(top[0], "data", "write"),
        }
        self._forward = Call(run, found[0], forward)
        backward: dict[int, Any] = {
            DST: operand(top[0], "data", "read"),
            DIFF_DST: operand(top[0], "diff", "read"),
            DIFF_SRC: operand(bottom[0], "diff", "write"),
        }
        self._backward = Call(run, found[1], backward)

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return top

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._forward()

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if propagate_down[0]:
            self._backward()
