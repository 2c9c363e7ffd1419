"""Log: a logarithm of any base."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer_registry import register_layer
from ._neuron import NeuronLayer


@register_layer("Log")
class LogLayer(NeuronLayer):
    """y = log_base(shift + scale · x).

    bottom[0]: any shape; shift + scale · x must be above 0 (0 gives -inf, less gives NaN).
    top[0]: the same shape; may be the bottom where no gradient is needed.
    log_param: base (default -1, which stands for e; else above 0, finite, not 1), scale (1), shift (0).
    Gradient: scale / ((shift + scale · x) · log(base)) · dy. Raises LayerError for any other base.
    """

    backward_needs_bottom_data = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.log_param
        if param.base != -1 and (not 0 < param.base < math.inf or param.base == 1):
            raise self.error(
                f"log_param.base (={param.base:g}): base must be strictly positive, finite and not 1, "
                "or -1 for e"
            )
        self.scale, self.shift = param.scale, param.shift
        self.factor = 1.0 if param.base == -1 else 1 / math.log(param.base)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        y = top[0].overwrite_cpu_data()
        np.multiply(bottom[0].cpu_data(), self.scale, out=y)
        y += self.shift
        np.log(y, out=y)
        if self.factor != 1:
            y *= self.factor

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not propagate_down[0]:
            return
        dx = bottom[0].overwrite_cpu_diff()
        np.multiply(bottom[0].cpu_data(), self.scale, out=dx)
        dx += self.shift
        np.divide(top[0].cpu_diff(), dx, out=dx)
        dx *= self.scale * self.factor
