"""ReLU: the rectifier, leaky where negative_slope is not 0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer_registry import register_layer
from ._neuron import NeuronLayer


@register_layer("ReLU")
class ReLULayer(NeuronLayer):
    """y = max(0, x) + negative_slope · min(0, x).

    bottom[0]: any shape, any real. top[0]: the same shape; may be the bottom.
    relu_param: negative_slope (default 0; any real); engine (DEFAULT, CAFFE, CUDNN: the same numbers).
    Gradient: dy where x > 0, negative_slope · dy elsewhere, 0 included.
    In place with negative_slope < 0 the sign of x is lost: refused where a gradient is needed.
    Source: Nair and Hinton, ICML 2010; Maas et al., ICML 2013 (leaky).
    """

    backward_needs_top_signs = True
    keeps_signs = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.negative_slope: float = self.layer_param.relu_param.negative_slope

    def in_place_refusal(self) -> str:
        if self.negative_slope < 0:
            return (
                f"with relu_param.negative_slope (={self.negative_slope:g}) < 0 its gradient needs the sign "
                "of the bottom, which working in place overwrites"
            )
        return ""

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return bottom

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, y = bottom[0].cpu_data(), top[0].overwrite_cpu_data()
        if self.negative_slope == 0:
            np.maximum(x, 0, out=y)
            return
        negative = np.minimum(x, 0, out=self.scratch(x))
        negative *= self.negative_slope
        np.maximum(x, 0, out=y)
        y += negative

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not propagate_down[0]:
            return
        x, dy, dx = bottom[0].cpu_data(), top[0].cpu_diff(), bottom[0].overwrite_cpu_diff()
        if self.negative_slope == 0:
            np.multiply(dy, np.greater(x, 0, out=self.mask(x)), out=dx)
            return
        less = np.multiply(dy, np.less_equal(x, 0, out=self.mask(x)), out=self.scratch(x))
        less *= self.negative_slope - 1
        np.add(dy, less, out=dx)
