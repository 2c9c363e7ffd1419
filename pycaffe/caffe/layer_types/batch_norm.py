"""BatchNorm: zero mean and unit variance per channel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..errors import ShapeError
from ..layer import Layer
from ..layer_registry import register_layer
from ..proto import caffe_pb2
from ._blocks import block_sum, block_total, channel_blocks
from ._neuron import memory


@register_layer("BatchNorm")
class BatchNormLayer(Layer):
    """y = (x - mean) / sqrt(variance + eps), mean and variance per channel. No learned scale or shift:
    a Scale layer with bias_term follows it.

    bottom[0]: (N, C, …), or one axis, which is one channel; any real. top[0]: the same shape; may be the
    bottom. Training takes mean and (biased) variance over the batch and adds them to running sums;
    with use_global_stats the running sums are used and stay as they are.
    blobs[0], blobs[1]: (C,), running sums of the mean and of the unbiased variance, each pass
        sum = moving_average_fraction · sum + new; blobs[2]: (1,), the running sum of ones, by which the
        others are divided (0 gives mean 0 and variance 0). They are not learned: a net's param blocks for
        them have lr_mult 0 (three blocks, as in old nets, get it on loading).
    batch_norm_param: use_global_stats (default: false in TRAIN, true in TEST), moving_average_fraction
        (default 0.999), eps (default 1e-5, added to the variance).
    Gradient: (dy - mean(dy) - y · mean(dy · y)) / sqrt(variance + eps) over the batch's statistics,
    dy / sqrt(variance + eps) over the running ones.
    Raises LayerError for a param block with another lr_mult, ShapeError when C changes.
    Source: Ioffe and Szegedy, ICML 2015.
    """

    exact_num_bottom = 1
    exact_num_top = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.batch_norm_param
        self.fraction, self.eps = param.moving_average_fraction, param.eps
        self.use_global_stats = (
            param.use_global_stats if param.HasField("use_global_stats") else self.phase == caffe_pb2.TEST
        )
        self.normalised = np.empty(0)
        channels = channel_blocks(bottom[0].shape)[1]
        for shape in ((channels,), (channels,), (1,)):
            self.add_parameter(shape)
        specs = self.layer_param.param
        for i, spec in enumerate(specs):
            if spec.lr_mult != 0:
                raise self.error(
                    "Cannot configure batch normalization statistics as layer parameters: the lr_mult of "
                    f"param block {i} is {spec.lr_mult:g} and must be 0, since they are not learned"
                )
        while len(specs) < len(self.blobs):
            specs.add(lr_mult=0, decay_mult=0)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape_like(bottom[0])
        self.blocks = channel_blocks(bottom[0].shape)
        if self.blocks[1] != self.blobs[0].count:
            raise self.error(
                f"the statistics of {self.blobs[0].count} channels do not fit a bottom of shape "
                f"{bottom[0].shape}",
                ShapeError,
            )
        if not self.use_global_stats:
            # y, kept for backward: a layer that works in place on the top (Scale does) overwrites it there.
            self.normalised = memory(self.normalised, self.blocks, bottom[0].dtype)

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return ()

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0].cpu_data().reshape(self.blocks)
        y = top[0].overwrite_cpu_data().reshape(self.blocks)
        if self.use_global_stats:
            mean, variance = self._running()
            self.inverse = (1 / np.sqrt(variance + self.eps))[:, None]
            np.subtract(x, mean[:, None], out=y)
            y *= self.inverse
        elif x.size:
            count = x.shape[0] * x.shape[2]
            mean = (block_total(x) / count).astype(x.dtype)
            kept = np.subtract(x, mean[:, None], out=self.normalised)
            variance = (block_sum(kept, kept) / count).astype(x.dtype)
            self._update(mean, variance, count)
            self.inverse = (1 / np.sqrt(variance + self.eps))[:, None]
            kept *= self.inverse
            np.copyto(y, kept)

    def _running(self) -> tuple[np.ndarray, np.ndarray]:
        total = self.blobs[2].cpu_data()[0]
        factor = 0 if total == 0 else 1 / total
        return self.blobs[0].cpu_data() * factor, self.blobs[1].cpu_data() * factor

    def _update(self, mean: np.ndarray, variance: np.ndarray, count: int) -> None:
        unbiased = variance * (count / (count - 1) if count > 1 else 1)
        for blob, new in zip(self.blobs, (mean, unbiased, 1), strict=True):
            total = blob.mutable_cpu_data()
            total *= self.fraction
            total += new

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not propagate_down[0]:
            return
        dy = top[0].cpu_diff().reshape(self.blocks)
        dx = bottom[0].overwrite_cpu_diff().reshape(self.blocks)
        if self.use_global_stats:
            np.multiply(dy, self.inverse, out=dx)
        elif dy.size:
            y, count = self.normalised, dy.shape[0] * dy.shape[2]
            mean_dy = (block_total(dy) / count).astype(dy.dtype)
            mean_dy_y = (block_sum(dy, y) / count).astype(dy.dtype)
            along = np.multiply(y, mean_dy_y[:, None], out=self.run.scratch("elements", y.shape, y.dtype))
            along += mean_dy[:, None]
            np.subtract(dy, along, out=dx)
            dx *= self.inverse
