"""AbsVal: the absolute value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer_registry import register_layer
from ._neuron import NeuronLayer, in_place


@register_layer("AbsVal")
class AbsValLayer(NeuronLayer):
    """y = |x|.

    bottom[0]: any shape, any real. top[0]: the same shape; must not be the bottom (LayerError).
    Gradient: sign(x) dy, 0 at 0.
    """

    backward_needs_bottom_data = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if in_place(bottom, top):
            raise self.error("AbsVal Layer does not allow in-place computation; give its top another name")

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        np.abs(bottom[0].cpu_data(), out=top[0].overwrite_cpu_data())

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0]:
            sign = np.sign(bottom[0].cpu_data(), out=self.scratch(bottom[0].cpu_data()))
            np.multiply(top[0].cpu_diff(), sign, out=bottom[0].overwrite_cpu_diff())
