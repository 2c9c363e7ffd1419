"""Threshold: 1 above a value, 0 elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer_registry import register_layer
from ._neuron import NeuronLayer


@register_layer("Threshold")
class ThresholdLayer(NeuronLayer):
    """y = 1 where x > threshold, 0 elsewhere.

    bottom[0]: any shape, any real. top[0]: the same shape, 0 or 1; may be the bottom.
    threshold_param: threshold (default 0). No gradient: a net that needs one is refused (LayerError).
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.threshold: float = self.layer_param.threshold_param.threshold

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0].cpu_data()
        above = np.greater(x, self.threshold, out=self.mask(x))
        top[0].overwrite_cpu_data()[...] = above
