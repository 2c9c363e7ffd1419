"""LSTM: a long short-term memory over sequences."""

from __future__ import annotations

import numpy as np

from ..layer_registry import register_layer
from ._recurrent import RecurrentLayer, Unrolled
from .lstm_unit import unit_backward, unit_forward


@register_layer("LSTM")
class LSTMLayer(RecurrentLayer):
    """gates = W_xc · x_t + b_c (+ W_xc_static · x_static) + W_hc · (cont_t · h_{t-1}), split into i, f, o, g;
    c_t = cont_t · σ(f) · c_{t-1} + σ(i) · tanh(g);  h_t = σ(o) · tanh(c_t);  top[0][t] = h_t.

    Bottoms, tops, recurrent_param and gradient as in RecurrentLayer, with the states h and c.
    blobs: W_xc (4 D, I), b_c (4 D), with x_static W_xc_static (4 D, S), W_hc (4 D, D).
    Source: Hochreiter and Schmidhuber, 1997, as in Donahue et al., CVPR 2015.
    """

    states = ("h", "c")
    gates_per_output = 4
    input_weight, input_bias, hidden_weight = "W_xc", "b_c", "W_hc"

    def _allocate(self, steps: int, streams: int, dtype: np.dtype) -> None:
        self.squashed = np.empty((steps, streams, self.num_output), dtype)

    def _step(self, t: int, cont: np.ndarray) -> None:
        h, c = self.history
        unit_forward(self.gates[t], cont, c[t], c[t + 1], self.squashed[t], h[t + 1])

    def _step_backward(self, t: int, diffs: list[np.ndarray], gates_diff: np.ndarray) -> None:
        inputs, diffs[1] = unit_backward(
            self.gates[t], self.history[1][t], self.squashed[t], diffs[1], diffs[0]
        )
        np.concatenate(inputs, axis=-1, out=gates_diff)

    def _output(self, hidden: np.ndarray, out: np.ndarray) -> None:
        np.copyto(out, hidden)

    def _output_backward(self, hidden: np.ndarray, diff: np.ndarray) -> np.ndarray:
        return diff

    def _unroll_step(self, net: Unrolled, t: int, gate_inputs: str) -> None:
        net.add("Eltwise", f"gate_input_{t}", gate_inputs, f"gate_input_{t}")
        net.add("LSTMUnit", f"unit_{t}", f"c_{t - 1} gate_input_{t} cont_{t}", f"c_{t} h_{t}")
        if t == len(self.carried):
            net.add(
                "Concat",
                "h_concat",
                " ".join(f"h_{s}" for s in range(1, t + 1)),
                "h",
                "concat_param { axis: 0 }",
            )
