"""InnerProduct: three matrix products by cuBLAS."""

from __future__ import annotations

from collections.abc import Sequence

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from .base import CudaKernel, arithmetic
from .cublas import cublas
from .place import accumulate, read, write


@kernel("InnerProduct", engine="cuda")
class InnerProductKernel(CudaKernel):
    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return bottom

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer = self.layer
        (m, k), n = layer.bottom_shape, layer.num_output
        x, weights = read(bottom[0].data_mem), read(layer.blobs[0].data_mem)
        y = write(top[0].data_mem)
        cublas().gemm(x, weights, y, m, n, k, tb=not layer.transpose)
        if layer.bias_term:
            arithmetic().add_repeated.elements(m * n, y, read(layer.blobs[1].data_mem), n, 1)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        layer, dy = self.layer, read(top[0].diff_mem)
        (m, k), n = layer.bottom_shape, layer.num_output
        if layer.param_propagate_down[0]:
            x = read(bottom[0].data_mem)
            diff, before = accumulate(layer.blobs[0])
            if layer.transpose:
                cublas().gemm(x, dy, diff, k, n, m, before, ta=True)
            else:
                cublas().gemm(dy, x, diff, n, k, m, before, ta=True)
        if layer.bias_term and layer.param_propagate_down[1]:
            total, before = accumulate(layer.blobs[1])
            arithmetic().block_total.rows(n, m, dy, total, m, 1, before)
        if propagate_down[0]:
            weights, dx = read(layer.blobs[0].data_mem), write(bottom[0].diff_mem)
            cublas().gemm(dy, weights, dx, m, k, n, tb=layer.transpose)
