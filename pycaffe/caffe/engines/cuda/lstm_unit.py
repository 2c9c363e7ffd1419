"""LSTMUnit: all gates of all streams in one kernel."""

from __future__ import annotations

from collections.abc import Sequence

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from .base import CudaKernel, keep
from .place import Buffer, read, write


@kernel("LSTMUnit", engine="cuda")
class LSTMUnitKernel(CudaKernel):
    source = "lstm_unit"
    _values: Buffer | None = None
    _squashed: Buffer | None = None

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._values, self._squashed = (
            keep(self._values, bottom[1].count),
            keep(self._squashed, bottom[0].count),
        )

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        assert self._values is not None and self._squashed is not None
        c_prev, gates, cont = (read(blob.data_mem) for blob in bottom)
        c, h = (write(blob.data_mem) for blob in top)
        values, squashed = self._values.address, self._squashed.address
        self.code.forward.elements(
            bottom[0].count, gates, cont, c_prev, values, c, squashed, h, bottom[0].shape[2]
        )

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        assert self._values is not None and self._squashed is not None
        if propagate_down[2]:
            self.layer.backward(top, propagate_down, bottom)  # which refuses
        c_prev, c_diff, h_diff = read(bottom[0].data_mem), read(top[0].diff_mem), read(top[1].diff_mem)
        gates_diff = write(bottom[1].diff_mem) if propagate_down[1] else 0
        c_prev_diff = write(bottom[0].diff_mem) if propagate_down[0] else 0
        self.code.backward.elements(
            bottom[0].count,
            self._values.address,
            c_prev,
            self._squashed.address,
            c_diff,
            h_diff,
            gates_diff,
            c_prev_diff,
            bottom[0].shape[2],
        )
