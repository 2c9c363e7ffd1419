"""Swish: a self-gated activation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer_registry import register_layer
from ._neuron import NeuronLayer, memory, sigmoid


@register_layer("Swish")
class SwishLayer(NeuronLayer):
    """y = x · σ(beta · x), σ(z) = 1 / (1 + exp(-z)).

    bottom[0]: any shape, any real. top[0]: the same shape; may be the bottom: σ is kept for backward.
    swish_param: beta (default 1; any real).
    Gradient: (beta · y + σ · (1 - beta · y)) dy.
    Source: Ramachandran et al., arXiv:1710.05941.
    """

    backward_needs_top_data = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.beta: float = self.layer_param.swish_param.beta
        self.gate = np.empty(0)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        self.gate = memory(self.gate, bottom[0].shape, bottom[0].dtype)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0].cpu_data()
        np.multiply(x, self.beta, out=self.gate)
        sigmoid(self.gate, out=self.gate)
        np.multiply(x, self.gate, out=top[0].overwrite_cpu_data())

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not propagate_down[0]:
            return
        dy, dx = top[0].cpu_diff(), bottom[0].overwrite_cpu_diff()
        scaled = np.multiply(top[0].cpu_data(), self.beta, out=self.scratch(dy))
        slope = np.subtract(1, scaled, out=self.scratch(dy, "slope"))
        slope *= self.gate
        slope += scaled
        np.multiply(dy, slope, out=dx)
