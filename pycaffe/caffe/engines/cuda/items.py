"""Layers that pick by number: Embed, BatchReindex, Filter. The numbers are checked on the host, by the
layers themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from .base import CudaKernel, arithmetic, upload
from .place import accumulate, clear, read, write


@kernel("Embed", engine="cuda")
class EmbedKernel(CudaKernel):
    source = "embed"

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer = self.layer
        layer.indices(bottom[0])
        index, weights, y = read(bottom[0].data_mem), read(layer.blobs[0].data_mem), write(top[0].data_mem)
        self.code.forward.elements(top[0].count, index, weights, y, layer.num_output)
        if layer.bias_term:
            bias = read(layer.blobs[1].data_mem)
            arithmetic().add_repeated.elements(top[0].count, y, bias, layer.num_output, 1)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        layer, num = self.layer, bottom[0].count
        if propagate_down[0]:
            layer.backward(top, propagate_down, bottom)  # which refuses
        dy = read(top[0].diff_mem)
        if layer.param_propagate_down[0]:
            index, (diff, before) = read(bottom[0].data_mem), accumulate(layer.blobs[0])
            if before == 0:
                clear(diff, layer.blobs[0].count)
            self.code.backward.elements(top[0].count, index, dy, diff, layer.num_output)
        if layer.bias_term and layer.param_propagate_down[1]:
            total, before = accumulate(layer.blobs[1])
            arithmetic().block_total.rows(layer.num_output, num, dy, total, num, 1, before)


@kernel("BatchReindex", engine="cuda")
class BatchReindexKernel(CudaKernel):
    source = "items"

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._which = upload(self.layer.items(bottom).astype(np.int32))
        x, y, length = read(bottom[0].data_mem), write(top[0].data_mem), bottom[0].axis_count(1)
        self.code.pick.elements(top[0].count, x, self._which.address, y, length)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if propagate_down[1]:
            self.layer.backward(top, propagate_down, bottom)  # which refuses
        if propagate_down[0]:
            dy, dx = read(top[0].diff_mem), write(bottom[0].diff_mem)
            length, copies = bottom[0].axis_count(1), top[0].shape[0]
            self.code.add_up.elements(bottom[0].count, dy, self._which.address, dx, length, copies)


@kernel("Filter", engine="cuda")
class FilterKernel(CudaKernel):
    source = "items"

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._which = upload(self.layer.kept.astype(np.int32))
        for source, target in zip(bottom, top, strict=False):
            x, y, length = read(source.data_mem), write(target.data_mem), source.axis_count(1)
            self.code.pick.elements(target.count, x, self._which.address, y, length)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if propagate_down[-1]:
            self.layer.backward(top, propagate_down, bottom)  # which refuses
        for source, target, wanted in zip(bottom, top, propagate_down, strict=False):
            if wanted:
                dy, dx, length = read(target.diff_mem), write(source.diff_mem), source.axis_count(1)
                copies = target.shape[0]
                self.code.add_up.elements(source.count, dy, self._which.address, dx, length, copies)
