"""RNN and LSTM: one matrix product for all inputs, then one for each step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from .base import CudaKernel, arithmetic, keep, scratch
from .compiler import module
from .cublas import cublas
from .place import Buffer, accumulate, clear, copy, read, write


class RecurrentKernel(CudaKernel):
    """See RecurrentLayer, whose arithmetic this is. T steps, N streams, D outputs, G = gates · D."""

    _history: Sequence[Buffer] = ()
    _gates: Buffer | None = None
    _carried: Buffer | None = None
    _kept: Buffer | None = None

    @classmethod
    def supports(cls, layer: Any, bottom: Sequence[Blob]) -> bool:
        filled = all(blob.count for blob in bottom)
        return filled and not layer.layer_param.recurrent_param.debug_info and super().supports(layer, bottom)

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer = self.layer
        self.steps, self.streams = bottom[0].shape[:2]
        self.outputs, self.gates = layer.num_output, layer.gates_per_output * layer.num_output
        self.inputs = layer.blobs[0].shape[1]
        self.size = self.streams * self.outputs  # of one state
        count = self.steps * self.size
        before = [*self._history] or [None] * len(layer.states)
        self._history = [keep(buffer, count + self.size) for buffer in before]
        self._gates = keep(self._gates, self.steps * self.streams * self.gates)
        self._carried = keep(self._carried, count)
        self._kept = keep(self._kept, count)

    def _state(self, i: int, t: int) -> int:
        return self._history[i].address + 4 * t * self.size

    def _step_of(self, buffer: Buffer | None, t: int, width: int) -> int:
        assert buffer is not None
        return buffer.address + 4 * t * self.streams * width

    # -- what a subclass defines --------------------------------------------------------------------

    def _step(self, t: int, cont: int) -> None:
        """From the inputs of the gates of step t and the states t, the states t + 1."""
        raise NotImplementedError

    def _step_backward(self, t: int, diffs: Sequence[int], gates_diff: int) -> None:
        """From the diffs of the states t + 1, those of the gates' inputs, and of all states t but the
        hidden one."""
        raise NotImplementedError

    def _output(self, run: ExecutionContext, y: int) -> None:
        copy(self._state(0, 1), y, self.steps * self.size)

    def _output_backward(self, run: ExecutionContext, dy: int) -> int:
        """Address of the hidden states' diff."""
        return dy

    # -- forward and backward -----------------------------------------------------------------------

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        assert self._gates is not None
        layer, blas, math_ = self.layer, cublas(), arithmetic()
        steps, streams, size, gates = self.steps, self.streams, self.size, self.gates
        rows, all_gates = steps * streams, self._gates.address
        blas.gemm(
            read(bottom[0].data_mem),
            read(layer.blobs[0].data_mem),
            all_gates,
            rows,
            gates,
            self.inputs,
            tb=True,
        )
        math_.add_repeated.elements(rows * gates, all_gates, read(layer.blobs[1].data_mem), gates, 1)
        if layer.static:
            term, width = scratch(run, "static", streams * gates), layer.blobs[2].shape[1]
            blas.gemm(
                read(bottom[2].data_mem), read(layer.blobs[2].data_mem), term, streams, gates, width, tb=True
            )
            math_.add_repeated.elements(rows * gates, all_gates, term, streams * gates, 1)
        before = bottom[len(bottom) - layer.exposed :] if layer.exposed else layer.carry
        for i, blob in enumerate(before):
            copy(read(blob.data_mem), self._state(i, 0), size)
        weights, cont = read(layer.blobs[layer.hidden].data_mem), read(bottom[1].data_mem)
        for t in range(steps):
            carried, now = self._step_of(self._carried, t, self.outputs), cont + 4 * t * streams
            module("scale").forward.elements(size, self._state(0, t), now, carried, streams, self.outputs)
            blas.gemm(
                carried,
                weights,
                self._step_of(self._gates, t, gates),
                streams,
                gates,
                self.outputs,
                1.0,
                tb=True,
            )
            self._step(t, now)
        self._output(run, write(top[0].data_mem))
        for i, blob in enumerate(top[1:] if layer.exposed else layer.carry):
            copy(self._state(i, steps), write(blob.data_mem), size)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        layer, blas, size = self.layer, cublas(), self.size
        if propagate_down[1]:
            layer.backward(top, propagate_down, bottom)  # which refuses
        steps, streams, gates, outputs = self.steps, self.streams, self.gates, self.outputs
        output_diff = self._output_backward(run, read(top[0].diff_mem))
        first = scratch(run, "state_diffs", len(layer.states) * size)
        diffs = [first + 4 * i * size for i in range(len(layer.states))]
        for i, diff in enumerate(diffs):
            if layer.exposed:
                copy(read(top[1 + i].diff_mem), diff, size)
            else:
                clear(diff, size)
        gates_diff = scratch(run, "gates_diff", steps * streams * gates)
        weights, cont = read(layer.blobs[layer.hidden].data_mem), read(bottom[1].data_mem)
        for t in reversed(range(steps)):
            arithmetic().add.elements(size, diffs[0], output_diff + 4 * t * size, diffs[0])
            here = gates_diff + 4 * t * streams * gates
            self._step_backward(t, diffs, here)
            blas.gemm(here, weights, diffs[0], streams, outputs, gates)
            module("scale").forward.elements(
                size, diffs[0], cont + 4 * t * streams, diffs[0], streams, outputs
            )
        self._parameter_diffs(run, bottom, propagate_down, gates_diff)
        if propagate_down[0]:
            dx, w = write(bottom[0].diff_mem), read(layer.blobs[0].data_mem)
            blas.gemm(gates_diff, w, dx, steps * streams, self.inputs, gates)
        for i in range(layer.exposed):
            index = len(bottom) - layer.exposed + i
            if propagate_down[index]:
                copy(diffs[i], write(bottom[index].diff_mem), size)

    def _parameter_diffs(
        self, run: ExecutionContext, bottom: Sequence[Blob], propagate_down: Sequence[bool], gates_diff: int
    ) -> None:
        layer, gates, rows = self.layer, self.gates, self.steps * self.streams
        assert self._carried is not None
        self._add_product(0, gates_diff, read(bottom[0].data_mem), rows)
        self._add_product(layer.hidden, gates_diff, self._carried.address, rows)
        if layer.param_propagate_down[1]:
            total, before = accumulate(layer.blobs[1])
            arithmetic().block_total.rows(gates, rows, gates_diff, total, rows, 1, before)
        if layer.static:
            count = self.streams * gates
            summed, width = scratch(run, "static", count), math.prod(bottom[2].shape[1:])
            arithmetic().block_total.rows(count, self.steps, gates_diff, summed, self.steps, 1, 0.0)
            self._add_product(2, summed, read(bottom[2].data_mem), self.streams)
            if propagate_down[2]:
                dx, w = write(bottom[2].diff_mem), read(layer.blobs[2].data_mem)
                cublas().gemm(summed, w, dx, self.streams, width, gates)

    def _add_product(self, which: int, diff: int, source: int, rows: int) -> None:
        """The diff of a weight (outputs, inputs) += diffᵀ · source, over so many rows."""
        if self.layer.param_propagate_down[which]:
            blob = self.layer.blobs[which]
            target, before = accumulate(blob)
            cublas().gemm(diff, source, target, blob.shape[0], blob.shape[1], rows, before, ta=True)


@kernel("LSTM", engine="cuda")
class LSTMKernel(RecurrentKernel):
    source = "lstm_unit"
    _values: Buffer | None = None

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(run, bottom, top)
        self._values = keep(self._values, self.steps * self.streams * self.gates)

    def _step(self, t: int, cont: int) -> None:
        gates, values = self._step_of(self._gates, t, self.gates), self._step_of(self._values, t, self.gates)
        squashed, c, h = (
            self._step_of(self._kept, t, self.outputs),
            self._state(1, t + 1),
            self._state(0, t + 1),
        )
        self.code.forward.elements(
            self.size, gates, cont, self._state(1, t), values, c, squashed, h, self.outputs
        )

    def _step_backward(self, t: int, diffs: Sequence[int], gates_diff: int) -> None:
        values, squashed = (
            self._step_of(self._values, t, self.gates),
            self._step_of(self._kept, t, self.outputs),
        )
        h_diff, c_diff = diffs
        self.code.backward.elements(
            self.size, values, self._state(1, t), squashed, c_diff, h_diff, gates_diff, c_diff, self.outputs
        )


@kernel("RNN", engine="cuda")
class RNNKernel(RecurrentKernel):
    source = "tanh"

    def _step(self, t: int, cont: int) -> None:
        self.code.forward.elements(
            self.size, self._step_of(self._gates, t, self.gates), self._state(0, t + 1)
        )

    def _step_backward(self, t: int, diffs: Sequence[int], gates_diff: int) -> None:
        h = self._state(0, t + 1)
        self.code.backward.elements(self.size, h, h, diffs[0], gates_diff)

    def _output(self, run: ExecutionContext, y: int) -> None:
        assert self._kept is not None
        weight, bias = (read(blob.data_mem) for blob in self.layer.blobs[-2:])
        rows, d, kept = self.steps * self.streams, self.outputs, self._kept.address
        cublas().gemm(self._state(0, 1), weight, kept, rows, d, d, tb=True)
        arithmetic().add_repeated.elements(rows * d, kept, bias, d, 1)
        self.code.forward.elements(rows * d, kept, kept)
        copy(kept, y, rows * d)

    def _output_backward(self, run: ExecutionContext, dy: int) -> int:
        assert self._kept is not None
        layer, rows, d, kept = self.layer, self.steps * self.streams, self.outputs, self._kept.address
        inner, diff = scratch(run, "inner", rows * d), scratch(run, "hidden_diff", rows * d)
        self.code.backward.elements(rows * d, kept, kept, dy, inner)
        index = len(layer.blobs) - 2
        self._add_product(index, inner, self._state(0, 1), rows)
        if layer.param_propagate_down[-1]:
            total, before = accumulate(layer.blobs[-1])
            arithmetic().block_total.rows(d, rows, inner, total, rows, 1, before)
        cublas().gemm(inner, read(layer.blobs[index].data_mem), diff, rows, d, d)
        return diff
