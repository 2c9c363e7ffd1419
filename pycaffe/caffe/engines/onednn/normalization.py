"""BatchNorm, Scale and Bias: oneDNN's batch normalisation, whose parts can be left out.

Scale is one with mean 0, variance 0 and epsilon 1 (which must not be 0: channels that pad a block have
variance 0): its factor and bias, their gradients and the bottom's come out of one pass each. A layer that
works in place keeps what it read by exchanging the blob's buffer for another."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from ...layer import Layer
from .base import Call, Gradient, OneDNNKernel, no_post
from .layouts import MemoryDesc, activations, plain
from .place import PLACE, Operand
from .primitives import (
    BACKWARD,
    BACKWARD_DATA,
    DIFF_DST,
    DIFF_SCALE,
    DIFF_SHIFT,
    DIFF_SRC,
    DST,
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    MEAN,
    SCALE,
    SHIFT,
    SRC,
    USE_GLOBAL_STATS,
    USE_SCALE,
    USE_SHIFT,
    VARIANCE,
    Buffer,
    Memory,
    PrimitiveDesc,
)


class Kept:
    """What a layer in place reads, kept for its backward; `memory` is it.

    take() is called before the layer writes: the blob gets another buffer, which the layer must overwrite
    wholly. lend() is called when backward has read: a blob that was given up meanwhile gets the buffer, which
    take() will find there again, unless other layers in place take it first. So what is kept has just the
    memory that it needs, while what passes through the blob takes any from a pool.
    """

    def __init__(self, blob: Blob, layout: MemoryDesc):
        self.memory = Memory(layout)
        self._blob = blob
        # None while it is lent.
        self._buffer: Buffer | None = Buffer(layout.nbytes)
        self.lend()

    def take(self) -> None:
        mem, layout = self._blob.data_mem, self.memory.desc
        if layout.plain:
            np.copyto(self.prepare_to_fill().keep.floats[: mem.size], mem.read()[: mem.size])
        else:
            self._hold(mem.exchange_in(PLACE, layout, self._buffer))

    def lend(self) -> None:
        layout = self.memory.desc
        if self._buffer is not None and not layout.plain:
            if self._blob.data_mem.adopt(PLACE, layout, self._buffer):
                self._buffer = None

    def prepare_to_fill(self) -> Memory:
        """Where to write what the layer would have read, after it was not run by itself."""
        self._hold(self._buffer or Buffer(self.memory.desc.nbytes))
        return self.memory

    def _hold(self, buffer: Buffer) -> None:
        self._buffer = self.memory.keep = buffer
        self.memory.point(buffer.address)


def vector(values: np.ndarray) -> Memory:
    """A memory over a float32 array of one axis, which it keeps alive."""
    memory = Memory(plain(values.shape), None)
    memory.point(values.ctypes.data)
    memory.keep = values
    return memory


def forward_desc(prop: int, layout: MemoryDesc, eps: float, flags: int) -> PrimitiveDesc:
    return PrimitiveDesc("batch_normalization_forward", prop, layout, layout, eps, flags, no_post())


def backward_desc(layout: MemoryDesc, eps: float, flags: int, hint: PrimitiveDesc) -> PrimitiveDesc:
    prop = BACKWARD if flags & (USE_SCALE | USE_SHIFT) else BACKWARD_DATA
    return PrimitiveDesc(
        "batch_normalization_backward", prop, layout, layout, layout, eps, flags, hint, no_post()
    )


class _Normalizing(OneDNNKernel):
    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        return super().supports(layer, bottom) and 2 <= bottom[0].num_axes <= 5

    def lay_out(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        home = PLACE.home(bottom[0])
        self.layout = activations(bottom[0].shape, home) if bottom[0].num_axes > 2 else home
        self.top_homes = [self.layout]
        self.settle(top)
        self.kept: Kept | None = None

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return bottom if self.kept is None else ()

    def source(self, bottom: Blob, top: Blob, keep: bool) -> Operand | Memory:
        """Where forward and backward read the bottom."""
        if keep and bottom.data_mem is top.data_mem:
            self.kept = Kept(bottom, self.layout)
            return self.kept.memory
        return Operand(bottom, "data", self.layout, "read")


@kernel("BatchNorm", engine="onednn")
class BatchNormKernel(_Normalizing):
    """fused: the group that ran the last forward, by weak reference; None when the kernel itself did."""

    fused: weakref.ref[Any] | None = None

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer: Any = self.layer
        self.lay_out(bottom, top)
        channels = bottom[0].shape[1]
        self.mean, self.variance = np.zeros(channels, np.float32), np.zeros(channels, np.float32)
        self.global_stats: bool = layer.use_global_stats
        self.count = bottom[0].count // channels
        self._flags = USE_GLOBAL_STATS if self.global_stats else 0
        self.source_argument = self.source(bottom[0], top[0], keep=not self.global_stats)
        self._found = forward_desc(FORWARD_TRAINING, self.layout, layer.eps, self._flags)
        arguments: dict[int, Any] = {
            SRC: self.source_argument,
            DST: Operand(top[0], "data", self.layout, "write"),
            MEAN: vector(self.mean),
            VARIANCE: vector(self.variance),
        }
        self._forward = Call(run, self._found, arguments)

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.fused = None
        if self.global_stats:
            self.running()
            self._forward()
            return
        if self.kept is not None:
            self.kept.take()
        self._forward()
        self.update()

    def normalize_into(self, run: ExecutionContext, memory: Memory) -> None:
        """Write what forward would write, from this batch's statistics as they are."""
        layer: Any = self.layer
        desc = forward_desc(FORWARD_INFERENCE, self.layout, layer.eps, USE_GLOBAL_STATS)
        stats = {MEAN: vector(self.mean), VARIANCE: vector(self.variance)}
        Call(run, desc, {SRC: self.source_argument, DST: memory, **stats})()

    def running(self) -> None:
        """Set mean and variance from the running sums."""
        sums = self.layer.blobs
        total = sums[2].cpu_data()[0]
        factor = np.float32(0 if total == 0 else 1 / total)
        np.multiply(sums[0].cpu_data(), factor, out=self.mean)
        np.multiply(sums[1].cpu_data(), factor, out=self.variance)

    def update(self) -> None:
        """Add this batch's mean and unbiased variance to the running sums."""
        fraction: float = self.layer.fraction  # type: ignore[attr-defined]
        unbiased = self.variance * np.float32(self.count / (self.count - 1) if self.count > 1 else 1)
        for blob, new in zip(self.layer.blobs, (self.mean, unbiased, 1), strict=True):
            total = blob.mutable_cpu_data()
            total *= fraction
            total += new

    def prepare_backward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer: Any = self.layer
        desc = backward_desc(self.layout, layer.eps, self._flags, self._found)
        arguments: dict[int, Any] = {
            # With running statistics the gradient does not depend on the bottom, which may be overwritten by
            # now.
            SRC: self.source_argument,
            DIFF_DST: Operand(top[0], "diff", self.layout, "read"),
            DIFF_SRC: Operand(bottom[0], "diff", self.layout, "write"),
            MEAN: vector(self.mean),
            VARIANCE: vector(self.variance),
        }
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
            if self.kept is not None:
                self.kept.lend()


class _Affine(_Normalizing):
    """y = scale · x + bias per channel, either of which may be missing."""

    # The group that ran the last forward, by weak reference, until it has restored what backward needs here.
    restore: weakref.ref[Any] | None = None

    def parameters(self) -> dict[int, Blob]:
        """{SCALE or SHIFT: blob}"""
        raise NotImplementedError

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.lay_out(bottom, top)
        channels = bottom[0].shape[1]
        zeros = np.zeros(channels, np.float32)
        self._stats = {MEAN: vector(zeros), VARIANCE: vector(zeros)}
        self._params = self.parameters()
        self._flags = USE_GLOBAL_STATS | sum(USE_SCALE if k == SCALE else USE_SHIFT for k in self._params)
        keep = any(self.layer.param_propagate_down) or any(self.propagate_down)
        self.source_argument = self.source(bottom[0], top[0], keep)
        prop = FORWARD_TRAINING if keep else FORWARD_INFERENCE
        self._found = forward_desc(prop, self.layout, 1.0, self._flags)
        arguments: dict[int, Any] = {
            SRC: self.source_argument,
            DST: Operand(top[0], "data", self.layout, "write"),
            **self._stats,
            **{
                k: Operand(b, "data", plain((channels,)), "read", on_host=True)
                for k, b in self._params.items()
            },
        }
        self._forward = Call(run, self._found, arguments)

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.restore = None
        if self.kept is not None:
            self.kept.take()
        self._forward()

    def prepare_backward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        channels = plain(bottom[0].shape[1:2])
        hint = forward_desc(FORWARD_TRAINING, self.layout, 1.0, self._flags)
        desc = backward_desc(self.layout, 1.0, self._flags, hint)
        wanted = self.layer.param_propagate_down
        index = {id(b): i for i, b in enumerate(self.layer.blobs)}
        self._gradients = [
            Gradient(run, b, channels, wanted[index[id(b)]], on_host=True) for b in self._params.values()
        ]
        self._beside = None
        if not self._propagates(bottom, top):
            self._beside = Memory(self.layout, Buffer(self.layout.nbytes))
        arguments: dict[int, Any] = {
            SRC: self.source_argument,
            DIFF_DST: Operand(top[0], "diff", self.layout, "read"),
            DIFF_SRC: self._beside or Operand(bottom[0], "diff", self.layout, "write"),
            **self._stats,
        }
        for (k, blob), gradient in zip(self._params.items(), self._gradients, strict=True):
            arguments[DIFF_SCALE if k == SCALE else DIFF_SHIFT] = gradient.memory
            if k == SCALE:
                arguments[SCALE] = Operand(blob, "data", channels, "read", on_host=True)
        self._backward = Call(run, desc, arguments)

    def _propagates(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> bool:
        return not self.propagate_down or self.propagate_down[0]

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if not (propagate_down[0] or any(self.layer.param_propagate_down)):
            return
        group = self.restore() if self.restore is not None else None
        if group is not None:
            self.restore = None
            group.restore(run)
        for gradient in self._gradients:
            gradient.before()
        self._backward()
        for gradient in self._gradients:
            gradient.after()
        if self.kept is not None:
            self.kept.lend()


def _per_channel(layer: Layer, bottom: Sequence[Blob]) -> bool:
    """Is there one learned number for each channel, axis 1?"""
    outer, count, _ = layer.blocks  # type: ignore[attr-defined]
    shape = bottom[0].shape
    return len(bottom) == 1 and len(shape) >= 2 and outer == shape[0] and count == shape[1]


@kernel("Scale", engine="onednn")
class ScaleKernel(_Affine):
    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        return super().supports(layer, bottom) and _per_channel(layer, bottom)

    def parameters(self) -> dict[int, Blob]:
        return dict(zip((SCALE, SHIFT), self.layer.blobs, strict=False))


@kernel("Bias", engine="onednn")
class BiasKernel(_Affine):
    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        return super().supports(layer, bottom) and _per_channel(layer, bottom)

    def parameters(self) -> dict[int, Blob]:
        return {SHIFT: self.layer.blobs[0]}
