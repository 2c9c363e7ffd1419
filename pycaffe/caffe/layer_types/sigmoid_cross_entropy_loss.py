"""SigmoidCrossEntropyLoss: independent logistic losses, from scores and target probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..errors import ShapeError
from ..layer_registry import register_layer
from ..proto import caffe_pb2
from ._loss import LossLayer, Normalizer


@register_layer("SigmoidCrossEntropyLoss")
class SigmoidCrossEntropyLossLayer(LossLayer):
    """Sigmoid cross-entropy: E = -1/Z Σ t log p̂ + (1 - t) log(1 - p̂), p̂ = 1 / (1 + e^-x).

    bottom[0]: x, (N, …) scores, any real. bottom[1]: t, as many targets in [0, 1], first axis N.
    top[0]: () loss.

    loss_param.ignore_label (default none): elements whose target, its fraction cut off, is this one
    count for nothing.
    loss_param.normalization, Z: BATCH_SIZE (default: N), VALID (elements not ignored), FULL (all
    elements), NONE (1); Z is at least 1. loss_param.normalize, older: true is VALID, false is BATCH_SIZE.

    Gradient of bottom[0]: (p̂ - t) · loss_weight / Z, 0 at ignored elements. Targets have none.
    Raises ShapeError when the bottoms differ in N or in count. Source: Caffe's
    sigmoid_cross_entropy_loss_layer documentation.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.loss_param
        self.ignore_label = param.ignore_label if param.HasField("ignore_label") else None
        self._normalizer = Normalizer(param, default=caffe_pb2.LossParameter.BATCH_SIZE)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        if bottom[0].count != bottom[1].count:
            raise self.error(
                "SIGMOID_CROSS_ENTROPY_LOSS layer inputs must have the same count: bottom[0] has shape "
                f"{bottom[0].shape}, bottom[1] {bottom[1].shape}",
                ShapeError,
            )
        self._counted: np.ndarray | None = None
        self.divisor = 1.0

    def count_targets(self, bottom: Sequence[Blob]) -> None:
        """Fill _counted (flat; None without ignore_label) and divisor, by which the sum is divided."""
        if self.ignore_label is not None:
            self._counted = np.trunc(bottom[1].cpu_data().reshape(-1)) != self.ignore_label
        self.divisor = self._normalizer(bottom[0].shape[0], bottom[0].count, self._counted)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, t = bottom[0].cpu_data().reshape(-1), bottom[1].cpu_data().reshape(-1)
        self.count_targets(bottom)
        # -log(1 - p̂) = max(x, 0) + log(1 + e^-|x|): no exponential overflows.
        losses, term = self.run.scratch("sigmoid_cross_entropy", (2, x.size), x.dtype)
        np.abs(x, out=losses)
        np.negative(losses, out=losses)
        np.exp(losses, out=losses)
        np.log1p(losses, out=losses)
        losses += np.maximum(x, 0, out=term)
        losses -= np.multiply(x, t, out=term)
        if self._counted is not None:
            losses = losses[self._counted]
        top[0].overwrite_cpu_data()[...] = losses.sum() / self.divisor

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        self.refuse_label_gradient(propagate_down)
        if not propagate_down[0]:
            return
        x, t = bottom[0].cpu_data().reshape(-1), bottom[1].cpu_data().reshape(-1)
        diff = bottom[0].overwrite_cpu_diff().reshape(-1)
        # p̂ = (1 + tanh(x / 2)) / 2
        np.multiply(x, 0.5, out=diff)
        np.tanh(diff, out=diff)
        diff *= 0.5
        diff += 0.5
        diff -= t
        diff *= top[0].cpu_diff().item() / self.divisor
        if self._counted is not None:
            np.copyto(diff, 0, where=~self._counted)
