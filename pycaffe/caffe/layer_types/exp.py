"""Exp: an exponential of any base."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer_registry import register_layer
from ._neuron import NeuronLayer


@register_layer("Exp")
class ExpLayer(NeuronLayer):
    """y = base ^ (shift + scale · x).

    bottom[0]: any shape, any real. top[0]: the same shape, not negative; may be the bottom.
    exp_param: base (default -1, which stands for e; else above 0 and finite), scale (1), shift (0).
    Gradient: log(base) · scale · y · dy, from the top's values.
    Raises LayerError for any other base.
    """

    backward_needs_top_data = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.exp_param
        if param.base != -1 and not 0 < param.base < math.inf:
            raise self.error(
                f"exp_param.base (={param.base:g}): base must be strictly positive and finite, or -1 for e"
            )
        log_base = 1.0 if param.base == -1 else math.log(param.base)
        self.inner_scale, self.inner_shift = log_base * param.scale, log_base * param.shift

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        y = top[0].overwrite_cpu_data()
        np.multiply(bottom[0].cpu_data(), self.inner_scale, out=y)
        y += self.inner_shift
        np.exp(y, out=y)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0]:
            dx = bottom[0].overwrite_cpu_diff()
            np.multiply(top[0].cpu_diff(), top[0].cpu_data(), out=dx)
            dx *= self.inner_scale
