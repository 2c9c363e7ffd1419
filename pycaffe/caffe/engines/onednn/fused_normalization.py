"""BatchNorm over the batch, Scale and ReLU as one primitive, forward and backward."""

from __future__ import annotations

from typing import Any

from ...execution import ExecutionContext
from .base import Call, Gradient
from .groups import Group
from .layouts import plain
from .normalization import backward_desc as bn_backward_desc
from .normalization import forward_desc as bn_forward_desc
from .normalization import vector
from .place import Operand
from .primitives import (
    DIFF_DST,
    DIFF_SCALE,
    DIFF_SHIFT,
    DIFF_SRC,
    DST,
    FORWARD_TRAINING,
    FUSE_RELU,
    MEAN,
    SCALE,
    SRC,
    USE_SCALE,
    USE_SHIFT,
    VARIANCE,
    WORKSPACE,
    WORKSPACE_MD,
    Buffer,
    Memory,
    PrimitiveDesc,
)


class FusedNormalization(Group):
    """BatchNorm over the batch, Scale, and ReLU, forward and backward."""

    fuses_backward = True

    def prepare(self, run: ExecutionContext) -> bool:
        bn, scale = self.steps[0], self.steps[1]
        kernel, layout = bn.kernel, bn.kernel.layout
        self._params = scale.kernel.parameters()
        self._flags = sum(USE_SCALE if k == SCALE else USE_SHIFT for k in self._params)
        if len(self.steps) > 2:
            self._flags |= FUSE_RELU
        self._desc = bn_forward_desc(FORWARD_TRAINING, layout, bn.layer.eps, self._flags)
        channels = plain(kernel.mean.shape)
        self._stats = {MEAN: vector(kernel.mean), VARIANCE: vector(kernel.variance)}
        arguments: dict[int, Any] = {
            SRC: kernel.source_argument,
            DST: Operand(bn.top[0], "data", layout, "write"),
            **self._stats,
            **{k: Operand(b, "data", channels, "read", on_host=True) for k, b in self._params.items()},
        }
        self._workspace: dict[int, Any] = {}
        workspace = self._desc.desc(WORKSPACE_MD)
        if workspace.nbytes:
            self._workspace = {WORKSPACE: Memory(workspace, Buffer(workspace.nbytes))}
        self._call = Call(run, self._desc, {**arguments, **self._workspace})
        self._backward: Call | None = None
        return True

    def run(self, run: ExecutionContext) -> None:
        bn, scale = self.steps[0].kernel, self.steps[1].kernel
        if bn.kept is not None:
            bn.kept.take()
        self._call()
        bn.update()
        bn.fused = scale.restore = self._reference

    def restore(self, run: ExecutionContext) -> None:
        """Give Scale what it would have read: BatchNorm's own top."""
        bn, scale = self.steps[0].kernel, self.steps[1].kernel
        if scale.kept is not None:
            bn.normalize_into(run, scale.kept.prepare_to_fill())

    def backward(self, run: ExecutionContext) -> None:
        if not self.ready(run) or self.steps[0].kernel.fused is not self._reference:
            for step in reversed(self.steps):
                step.backward(run)
            return
        if self._backward is None:
            self._prepare_backward(run)
        for gradient in self._gradients:
            gradient.before()
        self._backward()  # type: ignore[misc]
        for gradient in self._gradients:
            gradient.after()
        kept = self.steps[0].kernel.kept
        if kept is not None:
            kept.lend()

    def _prepare_backward(self, run: ExecutionContext) -> None:
        bn, scale = self.steps[0], self.steps[1]
        kernel, layout = bn.kernel, bn.kernel.layout
        channels = plain(kernel.mean.shape)
        desc: PrimitiveDesc = bn_backward_desc(layout, bn.layer.eps, self._flags, self._desc)
        wanted = dict(zip(map(id, scale.layer.blobs), scale.layer.param_propagate_down, strict=True))
        self._gradients = [
            Gradient(run, b, channels, wanted[id(b)], on_host=True) for b in self._params.values()
        ]
        arguments: dict[int, Any] = {
            SRC: kernel.source_argument,
            DIFF_DST: Operand(bn.top[0], "diff", layout, "read"),
            DIFF_SRC: Operand(bn.bottom[0], "diff", layout, "write"),
            **self._stats,
            **self._workspace,
        }
        for (k, blob), gradient in zip(self._params.items(), self._gradients, strict=True):
            arguments[DIFF_SCALE if k == SCALE else DIFF_SHIFT] = gradient.memory
            if k == SCALE:
                arguments[SCALE] = Operand(blob, "data", channels, "read", on_host=True)
        self._backward = Call(run, desc, arguments)
