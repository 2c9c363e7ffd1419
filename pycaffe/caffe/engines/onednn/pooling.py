"""Pooling, MAX and AVE, with the original's windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from ...layer import Layer
from ...proto import caffe_pb2
from ...synced_mem import SyncedMem
from .base import Call, OneDNNKernel, no_post
from .layouts import MemoryDesc, activations, dims
from .place import PLACE, Operand
from .primitives import (
    DIFF_DST,
    DIFF_SRC,
    DST,
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    POOLING_AVG_EXCLUDE,
    POOLING_AVG_INCLUDE,
    POOLING_MAX,
    SRC,
    WORKSPACE,
    WORKSPACE_MD,
    Buffer,
    Memory,
    PrimitiveDesc,
)

_Pool = caffe_pb2.PoolingParameter


def _overhang(layer: Any) -> list[int]:
    """How far the last window reaches beyond the image, per axis; negative where it stops short of the
    end."""
    windows = layer.windows
    return [
        (places - 1) * stride + kernel - size - pad
        for places, stride, kernel, size, pad in zip(
            windows.places, layer.stride, layer.kernel, windows.sizes, layer.pad, strict=True
        )
    ]


def algorithm(layer: Any) -> int | None:
    """oneDNN's pooling that gives the original's numbers, or None.

    The original's average divides by the window up to the end of the padding. That is the whole window where
    none reaches farther (else see _Border), and the pixels in the image where there is no padding."""
    if layer.method == _Pool.MAX:
        return POOLING_MAX
    if layer.method != _Pool.AVE:
        return None
    return POOLING_AVG_INCLUDE if any(layer.pad) else POOLING_AVG_EXCLUDE


class _Border:
    """The last windows along an axis that reach beyond the padding: the original divides by what lies up to
    there, oneDNN by the whole window. parts: (where in memory, factor that makes up for it)"""

    def __init__(self, layer: Any, layout: MemoryDesc):
        self._layout = layout
        images, channels, *places = layout.shape
        self._shape, first = layout.shape, 2
        if layout.key[4]:
            block = layout.key[4][0][1]
            self._shape = (images, -(-channels // block), *places, block)
        elif not layout.plain:
            self._shape, first = (images, *places, channels), 1
        self.parts: list[tuple[tuple[Any, ...], np.float32]] = []
        if layer.method == _Pool.AVE and any(layer.pad):
            for k, (axis, size) in enumerate(zip(layer.windows.axes, layer.kernel, strict=True)):
                if axis.lengths[-1] < size:
                    where = (*[slice(None)] * (first + k), -1)
                    self.parts.append((where, np.float32(size / axis.lengths[-1])))

    def _seen(self, mem: SyncedMem, access: str) -> np.ndarray:
        if self._layout.plain:
            return getattr(mem, access)()[: mem.size].reshape(self._shape)
        buffer = getattr(mem, f"{access}_in")(PLACE, self._layout)
        return buffer.floats[: math.prod(self._shape)].reshape(self._shape)

    def correct(self, mem: SyncedMem) -> None:
        self._scale(self._seen(mem, "modify"))

    def corrected(self, mem: SyncedMem, out: Buffer) -> None:
        """out: a copy in the same layout, corrected."""
        copy = out.floats[: math.prod(self._shape)].reshape(self._shape)
        np.copyto(copy, self._seen(mem, "read"))
        self._scale(copy)

    def _scale(self, values: np.ndarray) -> None:
        for where, factor in self.parts:
            values[where] *= factor


@kernel("Pooling", engine="onednn")
class PoolingKernel(OneDNNKernel):
    repeatable = True

    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        pooling: Any = layer
        return (
            super().supports(layer, bottom)
            and len(layer.layer_param.top) == 1
            and 1 <= pooling.spatial_axes <= 3
            and algorithm(layer) is not None
            # A window that sees no pixel at all has numbers of its own in the original.
            and all(o < k for o, k in zip(_overhang(layer), pooling.kernel, strict=True))
            and all(p < k for p, k in zip(pooling.pad, pooling.kernel, strict=True))
        )

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer: Any = self.layer
        chosen = algorithm(layer)
        kernel, sizes = layer.kernel, len(layer.kernel)
        self._window = [
            dims(layer.stride),
            dims(kernel),
            dims([0] * sizes),
            dims(layer.pad),
            dims([max(0, o) for o in _overhang(layer)]),
        ]
        self._algorithm = chosen
        home = PLACE.home(bottom[0])
        self._source = activations(bottom[0].shape, home)
        self._target = activations(top[0].shape, home)
        backward = layer.phase == caffe_pb2.TRAIN or any(self.propagate_down)
        self._found = PrimitiveDesc(
            "pooling_forward",
            FORWARD_TRAINING if backward else FORWARD_INFERENCE,
            chosen,
            self._source,
            self._target,
            *self._window,
            no_post(),
        )
        arguments: dict[int, Any] = {
            SRC: Operand(bottom[0], "data", self._source, "read"),
            DST: Operand(top[0], "data", self._target, "write"),
        }
        workspace = self._found.desc(WORKSPACE_MD)
        self._workspace = None
        if workspace.nbytes:
            self._workspace = arguments[WORKSPACE] = Memory(workspace, Buffer(workspace.nbytes))
        self._forward = Call(run, self._found, arguments)
        self.top_homes = [self._target]
        self.settle(top)
        self._border = _Border(layer, self._target)
        self.repeatable = not self._border.parts

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return ()

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._forward()
        if self._border.parts:
            self._border.correct(top[0].data_mem)

    def prepare_backward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        desc = PrimitiveDesc(
            "pooling_backward",
            self._algorithm,
            self._source,
            self._target,
            *self._window,
            self._found,
            no_post(),
        )
        self._diff = Buffer(self._target.nbytes) if self._border.parts else None
        corrected = None if self._diff is None else Memory(self._target, self._diff)
        arguments: dict[int, Any] = {
            DIFF_DST: corrected or Operand(top[0], "diff", self._target, "read"),
            DIFF_SRC: Operand(bottom[0], "diff", self._source, "write"),
        }
        if self._workspace is not None:
            arguments[WORKSPACE] = self._workspace
        self._backward = Call(run, desc, arguments)

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if propagate_down[0]:
            if self._diff is not None:
                self._border.corrected(top[0].diff_mem, self._diff)
            self._backward()
