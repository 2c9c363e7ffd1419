"""LSTM and RNN: their matrix products by oneDNN (products.py), states and their gradients by NumPy.

At each step, what the gates' inputs become is part of the product. The layer's own arrays over all steps
(history, carried, gates) are used, so that states go on as in the layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from ...layer import Layer
from .base import OneDNNKernel
from .layouts import plain
from .place import Operand
from .primitives import Memory
from .products import Product, StepProduct, find_product, memory_of


class _Recurrent(OneDNNKernel):
    """kind: what happens to the gates at a step, of products.find_product."""

    kind: str

    @classmethod
    def products(cls, layer: Any, steps: int, streams: int) -> list[tuple[Any, ...]]:
        """Arguments of `find_product` for all products."""
        hidden = layer.blobs[layer.hidden].shape
        return [
            (steps * streams, layer.blobs[0].shape, True, "", False),
            (steps * streams, hidden, False, "", False),
            (streams, hidden, False, cls.kind, True),
            (streams, hidden[::-1], False, "", True),
        ]

    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        if not super().supports(layer, bottom):
            return False
        return all(find_product(*p) is not None for p in cls.products(layer, *bottom[0].shape[:2]))

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer: Any = self.layer
        steps, streams = bottom[0].shape[:2]
        self.top_homes = [plain(b.shape) for b in top]
        self.settle(top)
        self._inputs = Product(run, steps * streams, *layer.blobs[:2])
        shape = plain((steps * streams, layer.blobs[0].shape[1]))
        x = Operand(bottom[0], "data", shape, "read", on_host=True)
        self._gates = memory_of(layer.gates)
        self._from_inputs = self._inputs.forward(x, self._gates)
        self._carried, self._gate, self._result = (
            memory_of(layer.carried[0]),
            memory_of(layer.gates[0]),
            memory_of(self.results()[0]),
        )
        self._step = StepProduct(
            run,
            layer.blobs[layer.hidden],
            self._carried,
            self._result,
            self.kind,
            [(0, self._gate), *self.operands()],
        )

    def results(self) -> np.ndarray:
        """(T, N, …): what the products of the steps give."""
        raise NotImplementedError

    def operands(self) -> list[tuple[int, Memory]]:
        """Further operands of a step's product."""
        return []

    def advance(self, t: int, cont: np.ndarray | None) -> None:
        """The states after step t, of the gates. cont: (N, 1), or None where it is all 1."""

    def output(self, top: Blob) -> None:
        """The first top, of the hidden states."""
        np.copyto(top.overwrite_cpu_data(), self.layer.history[0][1:])  # type: ignore[attr-defined]

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer: Any = self.layer
        self._from_inputs()
        if layer.static:
            weight = layer.blobs[2]
            layer.gates += bottom[2].cpu_data().reshape(-1, weight.shape[1]) @ weight.cpu_data().T
        layer.begin(bottom)
        cont = bottom[1].cpu_data()[:, :, None]
        whole = (cont == 1).all(axis=(1, 2))
        hidden, carried, gates, results = layer.history[0], layer.carried, layer.gates, self.results()
        self._step.refresh()
        step = self._step.call
        for t, going_on in enumerate(whole):
            np.multiply(hidden[t], cont[t], out=carried[t])
            self._carried.point(carried[t].ctypes.data)
            self._gate.point(gates[t].ctypes.data)
            self._result.point(results[t].ctypes.data)
            step()
            self.advance(t, None if going_on else cont[t])
        self.output(top[0])
        layer.end(top)

    def prepare_backward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer: Any = self.layer
        steps, streams = bottom[0].shape[:2]
        wanted = layer.param_propagate_down
        self._gates_diff = np.empty_like(layer.gates)
        self._hidden_diff = np.empty_like(layer.history[0][0])
        every = memory_of(self._gates_diff)
        self._gate_diff = memory_of(self._gates_diff[0])
        weight = layer.blobs[layer.hidden]
        self._back = StepProduct(run, weight, self._gate_diff, memory_of(self._hidden_diff), transposed=True)
        shape = plain((steps * streams, layer.blobs[0].shape[1]))
        x = Operand(bottom[0], "data", shape, "read", on_host=True)
        dx = Operand(bottom[0], "diff", shape, "write", on_host=True)
        rows = Product(run, steps * streams, weight, None)
        self._learned = [
            self._inputs.backward_weights(x, every, wanted[:2]),
            rows.backward_weights(memory_of(layer.carried), every, [wanted[layer.hidden]]),
        ]
        self._to_bottom = self._inputs.backward_data(every, dx)

    def retreat(self, t: int, diffs: list[np.ndarray], gates_diff: np.ndarray) -> None:
        """From the diffs of the states after step t, gates_diff, and the diffs of all states but the hidden
        one before it."""
        raise NotImplementedError

    def output_backward(self, diff: np.ndarray) -> np.ndarray:
        """The hidden states' diff, of the first top's."""
        return diff

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        layer: Any = self.layer
        layer.refuse_indicator_gradient(propagate_down)
        output_diff = self.output_backward(top[0].cpu_diff())
        diffs = layer.final_diffs(top)
        np.copyto(self._hidden_diff, diffs[0])
        diffs[0] = self._hidden_diff
        cont = bottom[1].cpu_data()[:, :, None]
        self._back.refresh()
        back = self._back.call
        for t in reversed(range(len(cont))):
            diffs[0] += output_diff[t]
            self.retreat(t, diffs, self._gates_diff[t])
            self._gate_diff.point(self._gates_diff[t].ctypes.data)
            back()
            diffs[0] *= cont[t]
        for learned in self._learned:
            learned()
        if propagate_down[0]:
            self._to_bottom()
        if layer.static:
            total = self._gates_diff.sum(axis=0)
            weight = layer.blobs[2]
            if layer.param_propagate_down[2]:
                diff = weight.mutable_cpu_diff()
                diff += total.T @ bottom[2].cpu_data().reshape(-1, weight.shape[1])
            if propagate_down[2]:
                dx = total @ weight.cpu_data()
                bottom[2].overwrite_cpu_diff()[...] = dx.reshape(bottom[2].shape)
        layer.initial_diffs(diffs, propagate_down, bottom)


@kernel("LSTM", engine="onednn")
class LSTMKernel(_Recurrent):
    """The sigmoids are tanh, too: σ(x) = tanh(x / 2) / 2 + 1 / 2."""

    kind = "gates"

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer: Any = self.layer
        size = layer.num_output
        self._factor = np.ones((1, 4 * size), np.float32)
        self._factor[:, : 3 * size] = 0.5
        self._offset = np.zeros_like(self._factor)
        self._offset[:, : 3 * size] = 0.5
        self._parts = [np.split(gates, 4, axis=-1) for gates in layer.gates]
        self._terms = [np.empty_like(layer.history[0][0]) for _ in range(2)]
        super().prepare(run, bottom, top)

    def results(self) -> np.ndarray:
        return self.layer.gates  # type: ignore[attr-defined]

    def operands(self) -> list[tuple[int, Memory]]:
        return [(1, memory_of(self._factor)), (3, memory_of(self._factor)), (4, memory_of(self._offset))]

    def advance(self, t: int, cont: np.ndarray | None) -> None:
        layer: Any = self.layer
        h, c = layer.history
        i, f, o, g = self._parts[t]
        if cont is not None:
            f *= cont
        np.multiply(f, c[t], out=c[t + 1])
        c[t + 1] += np.multiply(i, g, out=self._terms[0])
        np.tanh(c[t + 1], out=layer.squashed[t])
        np.multiply(o, layer.squashed[t], out=h[t + 1])

    def retreat(self, t: int, diffs: list[np.ndarray], gates_diff: np.ndarray) -> None:
        layer: Any = self.layer
        h_diff, c_diff = diffs
        squashed, (i, f, o, g), (term, total) = layer.squashed[t], self._parts[t], self._terms
        size = layer.num_output
        # The diff of c, by way of h.
        np.multiply(squashed, squashed, out=total)
        np.subtract(1, total, out=total)
        total *= np.multiply(h_diff, o, out=term)
        total += c_diff
        # σ' = σ (1 - σ), tanh' = 1 - tanh².
        values = layer.gates[t]
        np.multiply(values, values, out=gates_diff)
        logistic, tanh = gates_diff[:, : 3 * size], gates_diff[:, 3 * size :]
        np.subtract(values[:, : 3 * size], logistic, out=logistic)
        np.subtract(1, tanh, out=tanh)
        di, df, do, dg = np.split(gates_diff, 4, axis=-1)
        di *= np.multiply(total, g, out=term)
        df *= np.multiply(total, layer.history[1][t], out=term)
        do *= np.multiply(h_diff, squashed, out=term)
        dg *= np.multiply(total, i, out=term)
        np.multiply(total, f, out=c_diff)


@kernel("RNN", engine="onednn")
class RNNKernel(_Recurrent):
    kind = "step"

    @classmethod
    def products(cls, layer: Any, steps: int, streams: int) -> list[tuple[Any, ...]]:
        output = (steps * streams, layer.blobs[-2].shape, True, "tanh", False)
        return [*super().products(layer, steps, streams), output]

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().prepare(run, bottom, top)
        layer: Any = self.layer
        self._product = Product(run, len(layer.output), layer.blobs[-2], layer.blobs[-1], "tanh")
        self._states = memory_of(layer.history[0][1:])
        self._output = self._product.forward(self._states, memory_of(layer.output))

    def results(self) -> np.ndarray:
        return self.layer.history[0][1:]  # type: ignore[attr-defined]

    def output(self, top: Blob) -> None:
        self._output()
        np.copyto(top.overwrite_cpu_data(), self.layer.output.reshape(top.shape))  # type: ignore[attr-defined]

    def prepare_backward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().prepare_backward(run, bottom, top)
        layer: Any = self.layer
        self._inner, self._states_diff = np.empty_like(layer.output), np.empty_like(layer.carried)
        inner = memory_of(self._inner)
        self._learned.append(
            self._product.backward_weights(self._states, inner, layer.param_propagate_down[-2:])
        )
        self._to_states = self._product.backward_data(inner, memory_of(self._states_diff))

    def output_backward(self, diff: np.ndarray) -> np.ndarray:
        output: np.ndarray = self.layer.output  # type: ignore[attr-defined]
        np.multiply(output, output, out=self._inner)
        np.subtract(1, self._inner, out=self._inner)
        self._inner *= diff.reshape(output.shape)
        self._to_states()
        return self._states_diff

    def retreat(self, t: int, diffs: list[np.ndarray], gates_diff: np.ndarray) -> None:
        hidden = self.layer.history[0][t + 1]  # type: ignore[attr-defined]
        np.multiply(hidden, hidden, out=gates_diff)
        np.subtract(1, gates_diff, out=gates_diff)
        gates_diff *= diffs[0]
