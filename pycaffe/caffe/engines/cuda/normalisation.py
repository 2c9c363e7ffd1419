"""LRN, BatchNorm and MVN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from .base import CudaKernel, arithmetic, keep, scratch, three
from .place import Buffer, modify, read, write


@kernel("LRN", engine="cuda")
class LRNKernel(CudaKernel):
    source = "lrn"
    _energy: Buffer | None = None

    @classmethod
    def supports(cls, layer: Any, bottom: Sequence[Blob]) -> bool:
        return (not layer.within or layer.spatial_axes <= 3) and super().supports(layer, bottom)

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer, shape = self.layer, bottom[0].shape
        axes, inner = (shape[2:], 1) if layer.within else (shape[1:2], math.prod(shape[2:]))
        # Aligned to the first axis: (a, 1, 1) across channels.
        sizes = three(axes, 1) if layer.within else (*axes, 1, 1)
        reach = [min(layer.size // 2, max(size - 1, 0)) for size in sizes]
        self.window = (*sizes, inner, *reach)
        self._energy = keep(self._energy, bottom[0].count)

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return bottom

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        assert self._energy is not None
        layer, count, s = self.layer, bottom[0].count, self._energy.address
        x = read(bottom[0].data_mem)
        self.code.energy.elements(count, x, s, *self.window, layer.k, layer.scale)
        self.code.forward.elements(count, x, s, write(top[0].data_mem), layer.beta)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        assert self._energy is not None
        if propagate_down[0]:
            layer, count, s = self.layer, bottom[0].count, self._energy.address
            x, dy, ratio = read(bottom[0].data_mem), read(top[0].diff_mem), scratch(run, "ratio", count)
            self.code.ratios.elements(count, x, s, dy, ratio, layer.beta)
            dx, factor = write(bottom[0].diff_mem), 2 * layer.scale * layer.beta
            self.code.backward.elements(count, x, s, dy, ratio, dx, *self.window, layer.beta, factor)


@kernel("BatchNorm", engine="cuda")
class BatchNormKernel(CudaKernel):
    source = "batch_norm"
    _kept: Buffer | None = None
    _statistics: Buffer | None = None

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer = self.layer
        self._kept = None if layer.use_global_stats else keep(self._kept, bottom[0].count)
        self._statistics = keep(self._statistics, 2 * layer.blocks[1])

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return ()

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        assert self._statistics is not None
        layer, (outer, channels, inner) = self.layer, self.layer.blocks
        x, mean = read(bottom[0].data_mem), self._statistics.address
        inverse, kept = mean + 4 * channels, 0
        if self._kept is None:
            sums = [read(blob.data_mem) for blob in layer.blobs]
            self.code.running.elements(channels, *sums, mean, inverse, layer.eps)
        elif bottom[0].count:
            sums, kept = [modify(blob.data_mem) for blob in layer.blobs], self._kept.address
            constants = (layer.eps, layer.fraction)
            self.code.statistics.rows(
                channels, outer * inner, x, mean, inverse, *sums, outer, inner, *constants
            )
        y = write(top[0].data_mem)
        self.code.forward.elements(bottom[0].count, x, mean, inverse, y, kept, channels, inner)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        assert self._statistics is not None
        if not propagate_down[0]:
            return
        outer, channels, inner = self.layer.blocks
        dy, count = read(top[0].diff_mem), bottom[0].count
        dx, inverse = write(bottom[0].diff_mem), self._statistics.address + 4 * channels
        if self._kept is None:
            self.code.backward_running.elements(count, dy, inverse, dx, channels, inner)
            return
        y, sums = self._kept.address, scratch(run, "sums", 2 * channels)
        products = sums + 4 * channels
        arithmetic().block_total.rows(channels, outer * inner, dy, sums, outer, inner, 0.0)
        arithmetic().block_product.rows(channels, outer * inner, dy, y, products, outer, inner, 0.0)
        per_channel = float(outer * inner)
        self.code.backward.elements(count, dy, y, sums, products, inverse, dx, channels, inner, per_channel)


@kernel("MVN", engine="cuda")
class MVNKernel(CudaKernel):
    source = "mvn"
    _deviation: Buffer | None = None

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.groups, self.length = self.layer.groups
        self._deviation = keep(self._deviation, self.groups)
        self.constants = (self.length, int(self.layer.normalize_variance), self.layer.eps)

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        assert self._deviation is not None
        x = read(bottom[0].data_mem)
        y, deviation = write(top[0].data_mem), self._deviation.address
        if self.length:
            self.code.forward.rows(self.groups, self.length, x, y, deviation, *self.constants)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        assert self._deviation is not None
        if propagate_down[0] and self.length:
            y, dy, deviation = read(top[0].data_mem), read(top[0].diff_mem), self._deviation.address
            dx = write(bottom[0].diff_mem)
            self.code.backward.rows(self.groups, self.length, y, dy, deviation, dx, *self.constants)
