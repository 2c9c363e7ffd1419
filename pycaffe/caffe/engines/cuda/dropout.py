"""Dropout: masks are drawn anew in backward instead of being kept."""

from __future__ import annotations

from collections.abc import Sequence

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from ...synced_mem import SyncedMem
from .base import CudaKernel, in_place
from .place import copy, read, write

_WORD = 0xFFFFFFFFFFFFFFFF


def draw_address(run: ExecutionContext, name: str) -> tuple[int, int, int, int]:
    """(two words of the key, iteration, sub-iteration) of a layer's draw in this pass."""
    low, high = run.random(name).key
    return low, high, run.iteration & _WORD, run.sub_iteration & _WORD


@kernel("Dropout", engine="cuda")
class DropoutKernel(CudaKernel):
    source = "dropout"

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return ()

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self.layer.drops:
            self._draw = draw_address(run, self.layer.name)
            self._apply(bottom[0].data_mem, top[0].data_mem)
        elif not in_place(bottom, top):
            copy(read(bottom[0].data_mem), write(top[0].data_mem), bottom[0].count)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if not propagate_down[0]:
            return
        if self.layer.drops:
            self._apply(top[0].diff_mem, bottom[0].diff_mem)
        elif not in_place(bottom, top):
            copy(read(top[0].diff_mem), write(bottom[0].diff_mem), bottom[0].count)

    def _apply(self, source: SyncedMem, target: SyncedMem) -> None:
        layer, count, x = self.layer, source.size, read(source)
        threshold, scale = int(layer.threshold), layer.scale
        self.code.apply.elements(-(-count // 8), x, write(target), count, threshold, scale, *self._draw)
