"""Clip: values held within bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer_registry import register_layer
from ._neuron import NeuronLayer


@register_layer("Clip")
class ClipLayer(NeuronLayer):
    """y = max(min_bound, min(x, max_bound)), with the bounds clip_param.min and clip_param.max.

    bottom[0]: any shape, any real. top[0]: the same shape, in [min, max]; may be the bottom where no
    gradient is needed. clip_param: min, max (both required).
    Gradient: dy where min ≤ x ≤ max, 0 elsewhere. Raises LayerError when a bound is missing.
    """

    backward_needs_bottom_data = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.clip_param
        for field in ("min", "max"):
            if not param.HasField(field):
                raise self.error(f"clip_param.{field} must be given")
        self.min, self.max = param.min, param.max

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        y = top[0].overwrite_cpu_data()
        np.minimum(bottom[0].cpu_data(), self.max, out=y)
        np.maximum(y, self.min, out=y)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not propagate_down[0]:
            return
        x, dx = bottom[0].cpu_data(), bottom[0].overwrite_cpu_diff()
        inside = np.greater_equal(x, self.min, out=self.mask(x))
        np.multiply(top[0].cpu_diff(), inside, out=dx)
        dx *= np.less_equal(x, self.max, out=inside)
