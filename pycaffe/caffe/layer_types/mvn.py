"""MVN: mean and variance normalisation of each image or channel by itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer import Layer
from ..layer_registry import register_layer
from ._blocks import channel_blocks


@register_layer("MVN")
class MVNLayer(Layer):
    """y = (x - mean) / (deviation + eps), over each (n, c), or over each n with across_channels.

    bottom[0]: (N, C, …), any real. top[0]: the same shape; may be the bottom. deviation is
    the square root of the (biased) variance.
    mvn_param: normalize_variance (default true; false subtracts the mean only), across_channels (default
        false), eps (default 1e-9).
    Gradient: (dy - mean(dy) - y · mean(dy · y) · (deviation + eps) / deviation) / (deviation + eps), from
    the top's values; where the deviation is 0, its own part is left out. (The original takes eps for part
    of the deviation.)
    """

    exact_num_bottom = 1
    exact_num_top = 1
    backward_needs_top_data = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.mvn_param
        self.normalize_variance, self.across_channels = param.normalize_variance, param.across_channels
        self.eps = param.eps

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape_like(bottom[0])
        images, channels, rest = channel_blocks(bottom[0].shape)
        self.groups = (images, channels * rest) if self.across_channels else (images * channels, rest)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0].cpu_data().reshape(self.groups)
        y = top[0].overwrite_cpu_data().reshape(self.groups)
        if not y.size:
            return
        np.subtract(x, x.mean(axis=1, keepdims=True), out=y)
        if self.normalize_variance:
            self.deviation = np.sqrt(np.einsum("gi,gi->g", y, y) / y.shape[1])[:, None]
            y /= self.deviation + self.eps

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not propagate_down[0]:
            return
        dy = top[0].cpu_diff().reshape(self.groups)
        dx = bottom[0].overwrite_cpu_diff().reshape(self.groups)
        if not dy.size:
            return
        mean = dy.mean(axis=1, keepdims=True)
        if not self.normalize_variance:
            np.subtract(dy, mean, out=dx)
            return
        y, divisor = top[0].cpu_data().reshape(self.groups), self.deviation + self.eps
        share = np.divide(divisor, self.deviation, out=np.zeros_like(divisor), where=self.deviation > 0)
        share *= np.einsum("gi,gi->g", dy, y)[:, None] / y.shape[1]
        along = np.multiply(y, share, out=self.run.scratch("elements", y.shape, y.dtype))
        along += mean
        np.subtract(dy, along, out=dx)
        dx /= divisor
