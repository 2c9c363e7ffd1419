"""Pooling and SPP, over up to three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from ...proto import caffe_pb2
from .base import CudaKernel, arithmetic, keep, scratch, three
from .compiler import module
from .dropout import draw_address
from .place import Buffer, copy, read, write

MAX, AVE = caffe_pb2.PoolingParameter.MAX, caffe_pb2.PoolingParameter.AVE


@kernel("Pooling", engine="cuda")
class PoolingKernel(CudaKernel):
    source = "pooling"
    _index: Buffer | None = None

    @classmethod
    def supports(cls, layer: Any, bottom: Sequence[Blob]) -> bool:
        numbers = (*layer.kernel, *layer.stride, *layer.pad)
        return len(layer.kernel) <= 3 and max(numbers) < 2**28 and super().supports(layer, bottom)

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.measure(bottom, top)
        self._index = keep(self._index, self.count) if self.method != AVE else None

    def measure(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """All of reshape but the memory for what backward needs."""
        layer, shape = self.layer, top[0].shape
        self.method, self.training = layer.method, layer.phase == caffe_pb2.TRAIN
        self.geometry = (
            *three(bottom[0].shape[2:], 1),
            *three(layer.kernel, 1),
            *three(layer.stride, 1),
            *three(layer.pad, 0),
            *three(shape[2:], 1),
        )
        self.count = math.prod(shape)

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return () if self.method in (AVE, MAX) or self.training else bottom

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, count = read(bottom[0].data_mem), self.count
        y = write(top[0].data_mem)
        if self._index is None:
            self.code.average_forward.elements(count, x, y, *self.geometry)
        elif self.method == MAX:
            self.code.max_forward.elements(count, x, y, self._index.address, *self.geometry)
            if len(top) > 1:
                self.code.index_as_float.elements(count, self._index.address, write(top[1].data_mem))
        elif self.training:
            bits = scratch(run, "bits", count)
            address = draw_address(run, self.layer.name)
            module("dropout").draw.elements(-(-count // 8), bits, count, *address)
            self.code.draw_forward.elements(count, x, bits, y, self._index.address, *self.geometry)
        else:
            self.code.expectation.elements(count, x, y, scratch(run, "inverse", count), *self.geometry)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if not propagate_down[0]:
            return
        dy, count = read(top[0].diff_mem), bottom[0].count
        dx = write(bottom[0].diff_mem)
        if self._index is None:
            self.code.average_backward.elements(count, dy, dx, *self.geometry)
        elif self.method == MAX or self.training:
            self.code.chosen_backward.elements(count, dy, self._index.address, dx, *self.geometry)
        else:
            x = read(bottom[0].data_mem)
            mean, inverse = scratch(run, "mean", self.count), scratch(run, "inverse", self.count)
            self.code.expectation.elements(self.count, x, mean, inverse, *self.geometry)
            self.code.expectation_backward.elements(count, x, mean, inverse, dy, dx, *self.geometry)


@kernel("SPP", engine="cuda")
class SPPKernel(CudaKernel):
    """A Pooling kernel for each level."""

    @classmethod
    def supports(cls, layer: Any, bottom: Sequence[Blob]) -> bool:
        return all(PoolingKernel.supports(level, bottom) for level in layer.levels)

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.levels = [PoolingKernel(level) for level in self.layer.levels]
        for level, pooled in zip(self.levels, self.layer.pooled, strict=True):
            level.reshape(run, bottom, [pooled])

    def _parts(self, top: Blob) -> list[tuple[Blob, tuple[int, int, int, int]]]:
        """(a level's blob, how it lies in the top: its length, where it begins, its size, 1)"""
        parts, begin, along = [], 0, top.axis_count(1)
        for pooled in self.layer.pooled:
            size = pooled.axis_count(1)
            parts.append((pooled, (along, begin, size, 1)))
            begin += size
        return parts

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for level, pooled in zip(self.levels, self.layer.pooled, strict=True):
            level.forward(run, bottom, [pooled])
        y = write(top[0].data_mem)
        for pooled, part in self._parts(top[0]):
            arithmetic().copy_in.elements(pooled.count, read(pooled.data_mem), y, *part)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if not propagate_down[0]:
            return
        one, count, dy = self.layer.level_bottom, bottom[0].count, read(top[0].diff_mem)
        one.share_data(bottom[0])
        total = write(bottom[0].diff_mem)
        for i, (level, (pooled, part)) in enumerate(zip(self.levels, self._parts(top[0]), strict=True)):
            arithmetic().copy_out.elements(pooled.count, dy, write(pooled.diff_mem), *part)
            level.backward(run, [pooled], propagate_down, [one])
            diff = read(one.diff_mem)
            if i == 0:
                copy(diff, total, count)
            else:
                arithmetic().add.elements(count, total, diff, total)
