"""BNLL: the binomial negative log likelihood, also called softplus."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer_registry import register_layer
from ._neuron import NeuronLayer, sigmoid


@register_layer("BNLL")
class BNLLLayer(NeuronLayer):
    """y = log(1 + exp(x)), computed as max(x, 0) + log(1 + exp(-|x|)), which cannot overflow.

    bottom[0]: any shape, any real. top[0]: the same shape, not negative; may be the bottom where no
    gradient is needed. Gradient: dy / (1 + exp(-x)).
    """

    backward_needs_bottom_data = True

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, y = bottom[0].cpu_data(), top[0].overwrite_cpu_data()
        tail = np.abs(x, out=self.scratch(x))
        np.negative(tail, out=tail)
        np.exp(tail, out=tail)
        np.log1p(tail, out=tail)
        np.maximum(x, 0, out=y)
        y += tail

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0]:
            dx = bottom[0].overwrite_cpu_diff()
            sigmoid(bottom[0].cpu_data(), out=dx)
            dx *= top[0].cpu_diff()
