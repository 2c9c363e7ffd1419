"""RNN: a simple recurrent network over sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer_registry import register_layer
from ._recurrent import RecurrentLayer, Unrolled


@register_layer("RNN")
class RNNLayer(RecurrentLayer):
    """h_t = tanh(W_xh · x_t + b_h (+ W_xh_static · x_static) + W_hh · (cont_t · h_{t-1}));
    top[0][t] = tanh(W_ho · h_t + b_o).

    Bottoms, tops, recurrent_param and gradient as in RecurrentLayer, with the state h.
    blobs: W_xh (D, I), b_h (D), with x_static W_xh_static (D, S), W_hh (D, D), W_ho (D, D), b_o (D).
    Source: Elman, 1990, as in Donahue et al., CVPR 2015.
    """

    states = ("h",)
    gates_per_output = 1
    input_weight, input_bias, hidden_weight = "W_xh", "b_h", "W_hh"

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().setup(bottom, top)
        param = self.layer_param.recurrent_param
        self.add_parameter((self.num_output, self.num_output), param.weight_filler)
        self.add_parameter((self.num_output,), param.bias_filler)

    def _allocate(self, steps: int, streams: int, dtype: np.dtype) -> None:
        self.output = np.empty((steps * streams, self.num_output), dtype)

    def _step(self, t: int, cont: np.ndarray) -> None:
        np.tanh(self.gates[t], out=self.history[0][t + 1])

    def _step_backward(self, t: int, diffs: list[np.ndarray], gates_diff: np.ndarray) -> None:
        np.square(self.history[0][t + 1], out=gates_diff)
        np.subtract(1, gates_diff, out=gates_diff)
        gates_diff *= diffs[0]

    def _output(self, hidden: np.ndarray, out: np.ndarray) -> None:
        np.matmul(self._rows(hidden), self.blobs[-2].cpu_data().T, out=self.output)
        self.output += self.blobs[-1].cpu_data()
        np.tanh(self.output, out=self.output)
        np.copyto(out, self.output.reshape(out.shape))

    def _output_backward(self, hidden: np.ndarray, diff: np.ndarray) -> np.ndarray:
        inner = diff.reshape(self.output.shape) * (1 - self.output * self.output)
        if self.param_propagate_down[-2]:
            weight_diff = self.blobs[-2].mutable_cpu_diff()
            weight_diff += inner.T @ self._rows(hidden)
        if self.param_propagate_down[-1]:
            bias_diff = self.blobs[-1].mutable_cpu_diff()
            bias_diff += inner.sum(axis=0)
        return (inner @ self.blobs[-2].cpu_data()).reshape(hidden.shape)

    def _unroll_step(self, net: Unrolled, t: int, gate_inputs: str) -> None:
        net.add("Eltwise", f"h_input_sum_{t}", gate_inputs, f"h_neuron_input_{t}")
        net.add("TanH", f"h_neuron_{t}", f"h_neuron_input_{t}", f"h_{t}")
        net.product(f"W_ho_h_{t}", f"h_{t}", f"W_ho_h_{t}", ("W_ho", "b_o"), 2, self.num_output)
        net.add("TanH", f"o_neuron_{t}", f"W_ho_h_{t}", f"o_{t}")
        if t == len(self.carried):
            net.add(
                "Concat",
                "o_concat",
                " ".join(f"o_{s}" for s in range(1, t + 1)),
                "o",
                "concat_param { axis: 0 }",
            )
