"""Softmax: scores into probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer import Layer
from ..layer_registry import register_layer


@register_layer("Softmax")
class SoftmaxLayer(Layer):
    """y = exp(x) / Σ exp(x), the sum running along axis; the largest x is subtracted first.

    bottom[0]: any shape of 1 axis or more, any real. top[0]: the same shape, in [0, 1], with sum 1 along
    axis; may be the bottom.
    softmax_param: axis (default 1; negative counts from the end); engine (the same numbers).
    Gradient: y · (dy - Σ dy · y), from the top's values. Raises LayerError for an axis outside.
    """

    exact_num_bottom = 1
    exact_num_top = 1
    backward_needs_top_data = True

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        axis = self.canonical_axis(self.layer_param.softmax_param.axis, bottom[0])
        # (outer, C, inner)
        self.blocks = (bottom[0].axis_count(0, axis), bottom[0].shape[axis], bottom[0].axis_count(axis + 1))
        top[0].reshape_like(bottom[0])

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return top

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0].cpu_data().reshape(self.blocks)
        y = top[0].overwrite_cpu_data().reshape(self.blocks)
        if y.size:
            np.subtract(x, x.max(axis=1, keepdims=True), out=y)
            np.exp(y, out=y)
            y /= y.sum(axis=1, keepdims=True)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not propagate_down[0]:
            return
        y, dy = top[0].cpu_data().reshape(self.blocks), top[0].cpu_diff().reshape(self.blocks)
        dx = bottom[0].overwrite_cpu_diff().reshape(self.blocks)
        mean = np.einsum("ocs,ocs->os", dy, y)
        np.subtract(dy, mean[:, None], out=dx)
        dx *= y
