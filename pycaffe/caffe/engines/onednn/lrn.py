"""LRN, in a layout for which oneDNN has fast code: blocks where the channels fill them, for some windows;
channels last for most others."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from ...layer import Layer
from .base import Call, OneDNNKernel, first_fast, no_post
from .layouts import MemoryDesc, activations, blocked, channels_last
from .library import load
from .place import PLACE, Operand
from .primitives import (
    DIFF_DST,
    DIFF_SRC,
    DST,
    FORWARD_TRAINING,
    LRN_ACROSS,
    LRN_WITHIN,
    SRC,
    WORKSPACE,
    WORKSPACE_MD,
    Buffer,
    Memory,
    PrimitiveDesc,
)

# Channels last, oneDNN is slow with fewer channels than a block has, crashes for a window of 1, and its
# gradients of larger windows than this are wrong where the channels do not fill blocks.
_LARGEST = 5


def _numbers(layer: Any) -> tuple[int, int, float, float, float]:
    """algorithm, window, alpha, beta, k."""
    param = layer.layer_param.lrn_param
    return (LRN_WITHIN if layer.within else LRN_ACROSS), layer.size, param.alpha, param.beta, layer.k


@functools.lru_cache(maxsize=1024)
def _find(
    layout: MemoryDesc, algorithm: int, size: int, alpha: float, beta: float, k: float
) -> tuple[PrimitiveDesc, PrimitiveDesc] | None:
    """Forward and backward, or None where one of them is slow."""
    numbers = (ctypes.c_int64(size), alpha, beta, k)
    forward = first_fast(
        [
            lambda: PrimitiveDesc(
                "lrn_forward", FORWARD_TRAINING, algorithm, layout, layout, *numbers, no_post()
            )
        ]
    )
    if forward is None:
        return None
    hint = forward
    backward = first_fast(
        [lambda: PrimitiveDesc("lrn_backward", algorithm, layout, layout, layout, *numbers, hint, no_post())]
    )
    return None if backward is None else (forward, backward)


def _layout(layer: Layer, bottom: Blob) -> MemoryDesc | None:
    """The first fast layout, the one in which the bottom lies if it is; None where there is none."""
    if bottom.num_axes not in (4, 5):
        return None
    shape, window = bottom.shape, layer.layer_param.lrn_param.local_size
    layouts = [blocked(shape)]
    if shape[1] >= load().channel_block and 1 < window <= _LARGEST:
        home = activations(shape, PLACE.home(bottom))
        layouts = list(dict.fromkeys([home, *layouts, channels_last(shape)]))
    return next((layout for layout in layouts if _find(layout, *_numbers(layer)) is not None), None)


@kernel("LRN", engine="onednn")
class LRNKernel(OneDNNKernel):
    repeatable = True

    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        return (
            super().supports(layer, bottom)
            and list(layer.layer_param.top) != list(layer.layer_param.bottom)
            and _layout(layer, bottom[0]) is not None
        )

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layout = _layout(self.layer, bottom[0])
        assert layout is not None  # supports asked
        self._layout = layout
        found = _find(layout, *_numbers(self.layer))
        assert found is not None
        self._found = found
        arguments: dict[int, Any] = {
            SRC: Operand(bottom[0], "data", layout, "read"),
            DST: Operand(top[0], "data", layout, "write"),
        }
        self._workspace = None
        workspace = found[0].desc(WORKSPACE_MD)
        if workspace.nbytes:
            self._workspace = arguments[WORKSPACE] = Memory(workspace, Buffer(workspace.nbytes))
        self._forward = Call(run, found[0], arguments)
        self.top_homes = [layout]
        self.settle(top)

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return bottom

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._forward()

    def prepare_backward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        arguments: dict[int, Any] = {
            SRC: Operand(bottom[0], "data", self._layout, "read"),
            DIFF_DST: Operand(top[0], "diff", self._layout, "read"),
            DIFF_SRC: Operand(bottom[0], "diff", self._layout, "write"),
        }
        if self._workspace is not None:
            arguments[WORKSPACE] = self._workspace
        self._backward = Call(run, self._found[1], arguments)

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if propagate_down[0]:
            self._backward()
