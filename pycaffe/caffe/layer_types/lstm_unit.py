"""LSTMUnit: one time step of a long short-term memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..errors import ShapeError
from ..layer import Layer
from ..layer_registry import register_layer
from ._neuron import memory, sigmoid


@register_layer("LSTMUnit")
class LSTMUnitLayer(Layer):
    """c = cont · σ(f) · c_prev + σ(i) · tanh(g);  h = σ(o) · tanh(c).

    bottom[0]: (1, N, D) c_prev, the cell of the step before. bottom[1]: (1, N, 4 D) the gates' inputs
    i, f, o, g in this order. bottom[2]: (1, N) cont, 0 where a sequence begins, else 1.
    top[0]: (1, N, D) c. top[1]: (1, N, D) h, in [-1, 1].
    Gradient: of c_prev and of the gates' inputs; cont has none. For a cont other than 0 and 1 it is the
    original's, which takes cont · σ(f) for the value of a sigmoid.
    Raises ShapeError for other shapes. Source: Hochreiter and Schmidhuber, 1997; Gers et al., 2000.
    """

    exact_num_bottom = 3
    exact_num_top = 2

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != 2

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.refuse_in_place(bottom, top)
        self.gates = self.squashed = np.empty(0)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        cell = bottom[0].shape
        if len(cell) != 3 or cell[0] != 1:
            raise self.error(f"bottom[0] must have the shape (1, N, D), not {cell}", ShapeError)
        for i, want in ((1, (1, cell[1], 4 * cell[2])), (2, cell[:2])):
            if bottom[i].shape != want:
                raise self.error(
                    f"bottom[{i}] must have the shape {want}, not {bottom[i].shape}: bottom[0] has {cell}",
                    ShapeError,
                )
        for blob in top:
            blob.reshape(cell)
        self.gates = memory(self.gates, bottom[1].shape, bottom[1].dtype)
        self.squashed = memory(self.squashed, cell, bottom[0].dtype)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        np.copyto(self.gates, bottom[1].cpu_data())
        unit_forward(
            self.gates,
            bottom[2].cpu_data(),
            bottom[0].cpu_data(),
            top[0].overwrite_cpu_data(),
            self.squashed,
            top[1].overwrite_cpu_data(),
        )

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[2]:
            raise self.error("Cannot backpropagate to sequence indicators (bottom[2])")
        gates_diff, cell_diff = unit_backward(
            self.gates, bottom[0].cpu_data(), self.squashed, top[0].cpu_diff(), top[1].cpu_diff()
        )
        if propagate_down[0]:
            bottom[0].overwrite_cpu_diff()[...] = cell_diff
        if propagate_down[1]:
            np.concatenate(gates_diff, axis=-1, out=bottom[1].overwrite_cpu_diff())


def unit_forward(
    gates: np.ndarray,
    cont: np.ndarray,
    c_prev: np.ndarray,
    c: np.ndarray,
    squashed: np.ndarray,
    h: np.ndarray,
) -> None:
    """gates (…, 4 D): inputs, replaced by the gates' values (f times cont). c, h and squashed = tanh(c)
    (…, D) are written. cont: (…)."""
    size = c.shape[-1]
    logistic = gates[..., : 3 * size]
    sigmoid(logistic, out=logistic)
    i, f, o, g = np.split(gates, 4, axis=-1)
    np.tanh(g, out=g)
    f *= cont[..., None]
    np.multiply(f, c_prev, out=c)
    c += i * g
    np.tanh(c, out=squashed)
    np.multiply(o, squashed, out=h)


def unit_backward(
    gates: np.ndarray, c_prev: np.ndarray, squashed: np.ndarray, c_diff: np.ndarray, h_diff: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """(diffs of the inputs of i, f, o and g; diff of c_prev) from what unit_forward left."""
    i, f, o, g = np.split(gates, 4, axis=-1)
    total = c_diff + h_diff * o * (1 - squashed * squashed)
    inputs = (
        total * g * i * (1 - i),
        total * c_prev * f * (1 - f),
        h_diff * squashed * o * (1 - o),
        total * i * (1 - g * g),
    )
    return inputs, total * f
