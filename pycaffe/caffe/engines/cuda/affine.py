"""Scale, Bias and PReLU: an operand laid over some axes, x as (outer, d, inner)."""

from __future__ import annotations

from collections.abc import Sequence

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from .base import CudaKernel, arithmetic, in_place, keep
from .place import Buffer, accumulate, copy, read, write


@kernel("Scale", engine="cuda")
class ScaleKernel(CudaKernel):
    source = "scale"
    _kept: Buffer | None = None

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._kept = keep(self._kept, bottom[0].count) if in_place(bottom, top) else None

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return bottom if self._kept is None else bottom[1:]

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer, count = self.layer, bottom[0].count
        _, d, inner = layer.blocks
        x, scale = read(bottom[0].data_mem), read(self._operand(bottom).data_mem)
        if self._kept is not None and (len(bottom) == 2 or layer.param_propagate_down[0]):
            copy(x, self._kept.address, count)
        y = write(top[0].data_mem)
        if layer.bias_term:
            bias = read(layer.blobs[-1].data_mem)
            self.code.forward_with_bias.elements(count, x, scale, bias, y, d, inner)
        else:
            self.code.forward.elements(count, x, scale, y, d, inner)

    def _operand(self, bottom: Sequence[Blob]) -> Blob:
        return bottom[1] if len(bottom) == 2 else self.layer.blobs[0]

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        layer, learned = self.layer, len(bottom) == 1
        outer, d, inner = layer.blocks
        dy, scale = read(top[0].diff_mem), self._operand(bottom)
        if layer.bias_term and layer.param_propagate_down[-1]:
            total, before = accumulate(layer.blobs[-1])
            arithmetic().block_total.rows(d, outer * inner, dy, total, outer, inner, before)
        if layer.param_propagate_down[0] if learned else propagate_down[1]:
            x = read(bottom[0].data_mem) if self._kept is None else self._kept.address
            total, before = accumulate(scale) if learned else (write(scale.diff_mem), 0.0)
            arithmetic().block_product.rows(d, outer * inner, dy, x, total, outer, inner, before)
        if propagate_down[0]:
            factor = read(scale.data_mem)
            self.code.forward.elements(bottom[0].count, dy, factor, write(bottom[0].diff_mem), d, inner)


@kernel("Bias", engine="cuda")
class BiasKernel(CudaKernel):
    source = "bias"

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return ()

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        _, d, inner = self.layer.blocks
        x, bias = read(bottom[0].data_mem), read(self._operand(bottom).data_mem)
        self.code.forward.elements(bottom[0].count, x, bias, write(top[0].data_mem), d, inner)

    def _operand(self, bottom: Sequence[Blob]) -> Blob:
        return bottom[1] if len(bottom) == 2 else self.layer.blobs[0]

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        outer, d, inner = self.layer.blocks
        dy, bias, learned = read(top[0].diff_mem), self._operand(bottom), len(bottom) == 1
        if self.layer.param_propagate_down[0] if learned else propagate_down[1]:
            total, before = accumulate(bias) if learned else (write(bias.diff_mem), 0.0)
            arithmetic().block_total.rows(d, outer * inner, dy, total, outer, inner, before)
        if propagate_down[0] and not in_place(bottom, top):
            copy(dy, write(bottom[0].diff_mem), bottom[0].count)


@kernel("PReLU", engine="cuda")
class PReLUKernel(CudaKernel):
    source = "prelu"
    _kept: Buffer | None = None

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._kept = keep(self._kept, bottom[0].count) if in_place(bottom, top) else None

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        _, channels, inner = self.layer.blocks
        x, slope, count = read(bottom[0].data_mem), read(self.layer.blobs[0].data_mem), bottom[0].count
        if self._kept is not None:
            copy(x, self._kept.address, count)
        self.code.forward.elements(count, x, slope, write(top[0].data_mem), channels, inner)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        outer, channels, inner = self.layer.blocks
        slopes, dy = self.layer.blobs[0], read(top[0].diff_mem)
        x = read(bottom[0].data_mem) if self._kept is None else self._kept.address
        if self.layer.param_propagate_down[0]:
            total, before = accumulate(slopes)
            self.code.slope_gradient.rows(channels, outer * inner, x, dy, total, outer, inner, before)
        if propagate_down[0]:
            slope, dx = read(slopes.data_mem), write(bottom[0].diff_mem)
            self.code.backward.elements(bottom[0].count, x, slope, dy, dx, channels, inner)
