"""ContrastiveLoss: pulls similar pairs together and pushes others a margin apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..errors import ShapeError
from ..layer_registry import register_layer
from ._loss import LossLayer


@register_layer("ContrastiveLoss")
class ContrastiveLossLayer(LossLayer):
    """Contrastive loss: E = 1/(2N) Σ_n y d² + (1 - y) max(margin - d, 0)², d = ‖a_n - b_n‖.

    bottom[0], bottom[1]: a and b, (N, C) or (N, C, 1, 1), any real. bottom[2]: y, N numbers, 0 for a
    dissimilar pair, else similar (fractions are cut off). top[0]: () loss.

    contrastive_loss_param.margin (default 1, in units of d; of d² with legacy_version).
    contrastive_loss_param.legacy_version (default false): dissimilar pairs cost max(margin - d², 0).

    Gradient of a, its negative for b, with s = loss_weight / N: s (a - b) for similar pairs; for others
    -s (margin - d) / (d + 1e-4) · (a - b), or -s (a - b) with legacy_version, where d is inside the
    margin, else 0. The 1e-4 keeps identical pairs finite. y has none.
    Raises ShapeError for other shapes. Source: Hadsell et al. 2006, Caffe's contrastive_loss_layer
    documentation.
    """

    exact_num_bottom = 3

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.contrastive_loss_param
        self._margin, self._legacy = param.margin, param.legacy_version

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        a, b, y = bottom
        for i, blob in enumerate((a, b)):
            if blob.axis_count(2) != 1:
                raise self.error(
                    f"bottom[{i}] must be (N, C) or (N, C, 1, 1), but its shape is {blob.shape}", ShapeError
                )
        if a.axis_count(1) != b.axis_count(1):
            raise self.error(
                f"both features must have the same channels: bottom[0] is {a.shape}, bottom[1] {b.shape}",
                ShapeError,
            )
        if y.count != a.shape[0] or y.axis_count(1) != 1:
            raise self.error(
                f"bottom[2] must hold one number for each of {a.shape[0]} pairs, but its shape is {y.shape}",
                ShapeError,
            )
        self._num, self._view = max(a.shape[0], 1), (a.shape[0], a.axis_count(1))
        self._difference = np.zeros(self._view, a.dtype)
        self._factor = np.zeros(a.shape[0], a.dtype)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        difference = self._difference
        np.subtract(
            bottom[0].cpu_data().reshape(self._view), bottom[1].cpu_data().reshape(self._view), out=difference
        )
        similar = np.trunc(bottom[2].cpu_data().reshape(-1)) != 0
        squared = np.einsum("nc,nc->n", difference, difference)
        if self._legacy:
            short = np.maximum(self._margin - squared, 0)
            penalty, push = short, short > 0
        else:
            distance = np.sqrt(squared)
            short = np.maximum(self._margin - distance, 0)
            penalty, push = short * short, short / (distance + 1e-4)
        # d E / d difference = factor · difference / N
        self._factor = np.where(similar, 1, -push.astype(squared.dtype))
        top[0].overwrite_cpu_data()[...] = np.where(similar, squared, penalty).sum() / (2 * self._num)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[2]:
            raise self.error(
                "ContrastiveLoss Layer cannot backpropagate to label inputs. Set propagate_down: false for "
                "the third bottom"
            )
        scale = top[0].cpu_diff().item() / self._num
        for i, sign in enumerate((1, -1)):
            if propagate_down[i]:
                diff = bottom[i].overwrite_cpu_diff().reshape(self._view)
                np.multiply(self._difference, (self._factor * (sign * scale))[:, None], out=diff)

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != 2
