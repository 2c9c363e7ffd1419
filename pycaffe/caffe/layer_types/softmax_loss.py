"""SoftmaxWithLoss: softmax and the negative log-likelihood of the labels, in one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer_registry import register_layer
from ._loss import SoftmaxClassLoss

# Probabilities below the smallest normal float32 count as this, so that no loss is infinite.
_FLOOR = np.finfo(np.float32).tiny


@register_layer("SoftmaxWithLoss")
class SoftmaxWithLossLayer(SoftmaxClassLoss):
    """Softmax cross-entropy: E = -1/Z Σ log p̂[o, l(o, i), i], p̂ = softmax of the scores along `axis`.

    bottom[0]: (N, C, …) scores, any real; C is the size of `axis`.
    bottom[1]: one label for each position outside `axis` ((N, 1, …) or (N, …)), integers in [0, C).
    top[0]: () loss. top[1], optional: p̂, shaped like bottom[0], without a way back for gradients.

    softmax_param.axis (default 1, negative from the end).
    loss_param.ignore_label (default none): positions with this label count for nothing.
    loss_param.normalization, Z: VALID (default: positions not ignored), FULL (all positions), BATCH_SIZE
    (product of the axes before `axis`), NONE (1); Z is at least 1, so that a batch of ignored labels
    has loss 0. loss_param.normalize, older: true is VALID, false is BATCH_SIZE.

    Gradient of bottom[0]: (p̂ - onehot(l)) · loss_weight / Z, 0 at ignored positions. p̂ below 1.2e-38
    counts as that in the loss, not in the gradient. Labels have none.
    Raises LabelError for a label outside [0, C), ShapeError when labels and positions differ in number.
    Source: Caffe's softmax_loss_layer documentation.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.set_up_classes(self.layer_param.softmax_param.axis, top)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        self._index = self._scores.index(self._labels)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.compute_probabilities(bottom, top)
        self._index = self._scores.index(self._labels)
        likelihood = np.maximum(self._prob.reshape(-1)[self._index], _FLOOR)
        if self._counted is not None:
            likelihood = likelihood[self._counted]
        # From 0: a loss of nothing is 0, not -0.
        total = 0 - np.log(likelihood, out=likelihood).sum()
        top[0].overwrite_cpu_data()[...] = total / self.divisor

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        self.refuse_label_gradient(propagate_down)
        if not propagate_down[0]:
            return
        scale = top[0].cpu_diff().item() / self.divisor
        diff = bottom[0].overwrite_cpu_diff().reshape(self._scores.view)
        np.multiply(self._prob, scale, out=diff)
        diff.reshape(-1)[self._index] -= scale
        self.zero_ignored(diff)
