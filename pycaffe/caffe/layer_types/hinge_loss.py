"""HingeLoss: one-vs-all margins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer_registry import register_layer
from ..proto import caffe_pb2
from ._loss import ItemClassLoss


@register_layer("HingeLoss")
class HingeLossLayer(ItemClassLoss):
    """One-vs-all hinge loss: E = 1/N Σ_n Σ_k m^p, m = max(0, 1 - δ(k = l_n) t[n, k]), δ = 1 if so, else -1.

    bottom[0]: t, (N, …) with D numbers per item, any real. bottom[1]: N labels, integers in [0, D).
    top[0]: () loss.

    hinge_loss_param.norm (default L1): p, 1 or 2.

    Gradient of bottom[0]: -δ · [m > 0] (L1) or -2δ m (L2), times loss_weight / N. Labels have none.
    Raises LabelError for a label outside [0, D), ShapeError unless there is one label per item.
    Source: Caffe's hinge_loss_layer documentation.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._squared = self.layer_param.hinge_loss_param.norm == caffe_pb2.HingeLossParameter.L2

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        self._margin = np.zeros(bottom[0].count, bottom[0].dtype)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        margin, index = self._margin, self.read_index(bottom[1])
        margin[...] = bottom[0].cpu_data().reshape(-1)
        margin[index] *= -1
        margin += 1
        np.maximum(margin, 0, out=margin)
        total = np.dot(margin, margin) if self._squared else margin.sum()
        top[0].overwrite_cpu_data()[...] = total / max(self._num, 1)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        self.refuse_label_gradient(propagate_down)
        if not propagate_down[0]:
            return
        scale = top[0].cpu_diff().item() / max(self._num, 1)
        diff = bottom[0].overwrite_cpu_diff().reshape(-1)
        if self._squared:
            np.multiply(self._margin, 2 * scale, out=diff)
        else:
            np.multiply(np.sign(self._margin), scale, out=diff)
        diff[self._index] *= -1
