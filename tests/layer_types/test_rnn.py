from __future__ import annotations

import numpy as np

from layer_types.recurrent import RecurrentTests


class TestRNN(RecurrentTests):
    type = "RNN"
    states = 1
    names = ["W_xh", "b_h", "W_xh_static", "W_hh", "W_ho", "b_o"]
    unrolled_output = "o"

    def step(self, p, x, static, states, cont):
        inner = p["W_xh"] @ x + p["b_h"] + p["W_hh"] @ (cont * states[0])
        if static.size:
            inner = inner + p["W_xh_static"] @ static
        h = np.tanh(inner)
        return np.tanh(p["W_ho"] @ h + p["b_o"]), [h]
