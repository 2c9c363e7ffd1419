"""Sigmoid: the logistic function."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer_registry import register_layer
from ._neuron import NeuronLayer, sigmoid


@register_layer("Sigmoid")
class SigmoidLayer(NeuronLayer):
    """y = 1 / (1 + exp(-x)).

    bottom[0]: any shape, any real. top[0]: the same shape, in [0, 1]; may be the bottom.
    sigmoid_param: engine (DEFAULT, CAFFE, CUDNN: the same numbers).
    Gradient: y (1 - y) dy, from the top's values.
    """

    backward_needs_top_data = True

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        sigmoid(bottom[0].cpu_data(), out=top[0].overwrite_cpu_data())

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not propagate_down[0]:
            return
        y, dy, dx = top[0].cpu_data(), top[0].cpu_diff(), bottom[0].overwrite_cpu_diff()
        slope = np.subtract(1, y, out=self.scratch(y))
        slope *= y
        np.multiply(dy, slope, out=dx)
