"""Pooling, MAX and AVE, with the original's windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from ...layer import Layer
from ...proto import caffe_pb2
from .base import Call, OneDNNKernel, no_post
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
    activations,
    dims,
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
    none reaches farther, and the pixels in the image where there is no padding; else it is neither of
    oneDNN's two."""
    if layer.method == _Pool.MAX:
        return POOLING_MAX
    if layer.method != _Pool.AVE:
        return None
    if not any(layer.pad):
        return POOLING_AVG_EXCLUDE
    return (
        POOLING_AVG_INCLUDE if all(o <= p for o, p in zip(_overhang(layer), layer.pad, strict=True)) else None
    )


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

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._forward()

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
        arguments: dict[int, Any] = {
            DIFF_DST: Operand(top[0], "diff", self._target, "read"),
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
            self._backward()
