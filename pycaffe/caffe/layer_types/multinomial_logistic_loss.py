"""MultinomialLogisticLoss: the negative log-likelihood of labels under given probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer_registry import register_layer
from ._loss import ItemClassLoss

_FLOOR = 1e-20  # smaller probabilities count as this


@register_layer("MultinomialLogisticLoss")
class MultinomialLogisticLossLayer(ItemClassLoss):
    """Multinomial logistic loss: E = -1/N Σ_n log p̂[n, l_n].

    bottom[0]: p̂, (N, …) with D probabilities per item (a Softmax's top; SoftmaxWithLoss does both at
    once and is steadier). bottom[1]: N labels, integers in [0, D). top[0]: () loss. No parameters.
    Gradient of bottom[0]: -loss_weight / (N p̂) at the label, 0 elsewhere; p̂ below 1e-20 counts as that.
    Labels have none.
    Raises LabelError for a label outside [0, D), ShapeError unless there is one label per item.
    Source: Caffe's multinomial_logistic_loss_layer documentation.
    """

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        likelihood = bottom[0].cpu_data().reshape(-1)[self.read_index(bottom[1])]
        total = 0 - np.log(np.maximum(likelihood, _FLOOR)).sum()  # 0, not -0
        top[0].overwrite_cpu_data()[...] = total / max(self._num, 1)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        self.refuse_label_gradient(propagate_down)
        if not propagate_down[0]:
            return
        likelihood = bottom[0].cpu_data().reshape(-1)[self._index]
        diff = bottom[0].overwrite_cpu_diff().reshape(-1)
        diff.fill(0)
        diff[self._index] = (-top[0].cpu_diff().item() / max(self._num, 1)) / np.maximum(likelihood, _FLOOR)
