from __future__ import annotations

import numpy as np

from layer_types.recurrent import SIZE, RecurrentTests


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class TestLSTM(RecurrentTests):
    type = "LSTM"
    states = 2
    names = ["W_xc", "b_c", "W_xc_static", "W_hc"]
    unrolled_output = "h"

    def step(self, p, x, static, states, cont):
        h, c = states
        gates = p["W_xc"] @ x + p["b_c"] + p["W_hc"] @ (cont * h)
        if static.size:
            gates = gates + p["W_xc_static"] @ static
        i, f, o, g = (gates[k * SIZE : (k + 1) * SIZE] for k in range(4))
        c = cont * sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        return h, [h, c]
