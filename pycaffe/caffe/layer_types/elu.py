"""ELU: the exponential linear unit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer_registry import register_layer
from ._neuron import NeuronLayer


@register_layer("ELU")
class ELULayer(NeuronLayer):
    """y = x where x > 0, alpha · (exp(x) - 1) elsewhere.

    bottom[0]: any shape, any real. top[0]: the same shape, above -alpha; may be the bottom.
    elu_param: alpha (default 1; any real).
    Gradient: dy where x > 0, (y + alpha) dy elsewhere.
    In place with alpha < 0 the sign of x is lost: refused where a gradient is needed.
    Source: Clevert et al., ICLR 2016.
    """

    backward_needs_top_data = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.alpha: float = self.layer_param.elu_param.alpha

    def in_place_refusal(self) -> str:
        if self.alpha < 0:
            return (
                f"with elu_param.alpha (={self.alpha:g}) < 0 its gradient needs the sign of the bottom, "
                "which working in place overwrites"
            )
        return ""

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, y = bottom[0].cpu_data(), top[0].overwrite_cpu_data()
        negative = np.minimum(x, 0, out=self.scratch(x))
        np.exp(negative, out=negative)
        negative -= 1
        negative *= self.alpha
        np.maximum(x, 0, out=y)
        y += negative

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not propagate_down[0]:
            return
        x, y = bottom[0].cpu_data(), top[0].cpu_data()
        dy, dx = top[0].cpu_diff(), bottom[0].overwrite_cpu_diff()
        # The slope less 1, so that it is exactly 1 on the positive side.
        slope = np.add(y, self.alpha - 1, out=self.scratch(x))
        slope *= np.less_equal(x, 0, out=self.mask(x))
        slope += 1
        np.multiply(dy, slope, out=dx)
