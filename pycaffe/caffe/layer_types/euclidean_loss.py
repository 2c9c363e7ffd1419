"""EuclideanLoss: half the mean squared distance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..errors import ShapeError
from ..layer_registry import register_layer
from ._loss import LossLayer


@register_layer("EuclideanLoss")
class EuclideanLossLayer(LossLayer):
    """Euclidean loss: E = 1/(2N) Σ_n ‖a_n - b_n‖².

    bottom[0]: a, (N, …), any real. bottom[1]: b, (N, …), with as many numbers per item.
    top[0]: () loss. No parameters.
    Gradient: (a - b) · loss_weight / N for bottom[0], its negative for bottom[1].
    Raises ShapeError when N or the numbers per item differ. Source: Caffe's euclidean_loss_layer
    documentation.
    """

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        if bottom[0].axis_count(1) != bottom[1].axis_count(1):
            raise self.error(
                f"Inputs must have the same dimension: bottom[0] has shape {bottom[0].shape}, that is "
                f"{bottom[0].axis_count(1)} numbers per item, bottom[1] {bottom[1].shape}, that is "
                f"{bottom[1].axis_count(1)}",
                ShapeError,
            )
        self._num = max(bottom[0].shape[0], 1)
        self._difference = np.zeros(bottom[0].count, bottom[0].dtype)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        d = self._difference
        np.subtract(bottom[0].cpu_data().reshape(-1), bottom[1].cpu_data().reshape(-1), out=d)
        top[0].overwrite_cpu_data()[...] = np.dot(d, d) / (2 * self._num)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        scale = top[0].cpu_diff().item() / self._num
        for i, sign in enumerate((1, -1)):
            if propagate_down[i]:
                np.multiply(self._difference, sign * scale, out=bottom[i].overwrite_cpu_diff().reshape(-1))

    def allow_force_backward(self, bottom_index: int) -> bool:
        return True
