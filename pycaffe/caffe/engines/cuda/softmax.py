"""Softmax: a block per row where the classes lie side by side, else a thread per position."""

from __future__ import annotations

from collections.abc import Sequence

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from .base import CudaKernel
from .compiler import module
from .place import read, write


def softmax(x: int, y: int, outer: int, classes: int, inner: int) -> None:
    """y = softmax of x (outer, classes, inner) over classes."""
    code = module("softmax")
    if inner == 1:
        code.forward_rows.rows(outer, classes, x, y, classes)
    else:
        code.forward_positions.elements(outer * inner, x, y, classes, inner)


@kernel("Softmax", engine="cuda")
class SoftmaxKernel(CudaKernel):
    source = "softmax"

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = read(bottom[0].data_mem)
        softmax(x, write(top[0].data_mem), *self.layer.blocks)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if not propagate_down[0]:
            return
        outer, classes, inner = self.layer.blocks
        y, dy = read(top[0].data_mem), read(top[0].diff_mem)
        dx = write(bottom[0].diff_mem)
        if inner == 1:
            self.code.backward_rows.rows(outer, classes, y, dy, dx, classes)
        else:
            self.code.backward_positions.elements(outer * inner, y, dy, dx, classes, inner)
