"""Eltwise and Reduction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from ...proto import caffe_pb2
from .base import CudaKernel, arithmetic, keep
from .place import Buffer, copy, read, write

_Op = caffe_pb2.EltwiseParameter
_Reduce = caffe_pb2.ReductionParameter


@kernel("Eltwise", engine="cuda")
class EltwiseKernel(CudaKernel):
    source = "eltwise"
    _winner: Buffer | None = None

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer.layer_param.eltwise_param
        self.operation, self.stable = param.operation, param.stable_prod_grad
        self.coeff = list(param.coeff) or [1.0] * len(bottom)
        self._winner = keep(self._winner, bottom[0].count) if self.operation == _Op.MAX else None

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return (*bottom, *top) if self.operation == _Op.PROD else ()

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        count, code = bottom[0].count, self.code
        a, b, *rest = [read(blob.data_mem) for blob in bottom]
        y = write(top[0].data_mem)
        if self.operation == _Op.SUM:
            code.sum.elements(count, a, self.coeff[0], b, self.coeff[1], y)
            for x, coeff in zip(rest, self.coeff[2:], strict=True):
                code.sum.elements(count, y, 1.0, x, coeff, y)
        elif self.operation == _Op.PROD:
            code.product.elements(count, a, b, y)
            for x in rest:
                code.product.elements(count, y, x, y)
        elif self._winner is not None:
            winner = self._winner.address
            code.first_max.elements(count, a, b, y, winner)
            for which, x in enumerate(rest, 2):
                code.next_max.elements(count, x, y, winner, which)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        count, dy = bottom[0].count, read(top[0].diff_mem)
        for i, blob in enumerate(bottom):
            if not propagate_down[i]:
                continue
            dx = write(blob.diff_mem)
            if self.operation == _Op.SUM and self.coeff[i] == 1:
                copy(dy, dx, count)
            elif self.operation == _Op.SUM:
                arithmetic().scaled.elements(count, dy, dx, self.coeff[i])
            elif self._winner is not None:
                self.code.max_backward.elements(count, dy, self._winner.address, dx, i)
            else:
                self._product_gradient(i, count, dy, dx, bottom, top[0])

    def _product_gradient(
        self, i: int, count: int, dy: int, dx: int, bottom: Sequence[Blob], top: Blob
    ) -> None:
        if not self.stable:
            product, x = read(top.data_mem), read(bottom[i].data_mem)
            self.code.quotient.elements(count, dy, product, x, dx)
            return
        source = dy
        for j, other in enumerate(bottom):
            if j != i:
                self.code.product.elements(count, source, read(other.data_mem), dx)
                source = dx


@kernel("Reduction", engine="cuda")
class ReductionKernel(CudaKernel):
    source = "reduction"

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer.layer_param.reduction_param
        self.rows = top[0].count
        self.length = bottom[0].axis_count(top[0].num_axes)
        operation = {_Reduce.SUM: 0, _Reduce.MEAN: 0, _Reduce.ASUM: 1, _Reduce.SUMSQ: 2}[param.operation]
        mean = param.operation == _Reduce.MEAN
        coeff = param.coeff / max(self.length, 1) if mean else param.coeff
        self.constants: tuple[Any, ...] = (self.length, operation, coeff)

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = read(bottom[0].data_mem)
        self.code.forward.rows(self.rows, self.length, x, write(top[0].data_mem), *self.constants)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if propagate_down[0]:
            x, dy = read(bottom[0].data_mem), read(top[0].diff_mem)
            self.code.backward.elements(bottom[0].count, x, dy, write(bottom[0].diff_mem), *self.constants)
