"""LRN: local response normalization, each value divided by the energy around it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..errors import ShapeError
from ..layer import Layer
from ..layer_registry import register_layer
from ..proto import caffe_pb2
from ._pooling import Windows

# Images worked on at a time: so many bytes stay in a cache.
_CHUNK_BYTES = 1 << 20


@register_layer("LRN")
class LRNLayer(Layer):
    """y = x · s^-beta, s = k + alpha / n · Σ x² over a window of local_size around each value.

    bottom[0]: (N, C, …), any real; s must stay above 0. top[0]: the bottom's shape.

    lrn_param: local_size (5), odd; alpha (1); beta (0.75); k (1); norm_region:
        ACROSS_CHANNELS (default): the window runs over channels, n = local_size.
        WITHIN_CHANNEL: over all spatial axes, n = local_size ^ axes. k is ignored: it counts as 1,
            as in the original.
    What lies outside counts as 0. engine changes the way, not the result.

    Gradient: x' = y' · s^-beta - 2 alpha beta / n · x · Σ y' x s^(-beta - 1) over the same window.
    Raises LayerError for an even local_size, ShapeError for a bottom without channels or, within channels,
    without spatial axes. Source: Krizhevsky et al., NIPS 2012, section 3.3; Caffe's LRN.
    """

    exact_num_bottom = 1
    exact_num_top = 1
    backward_needs_bottom_data = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.lrn_param
        if param.local_size % 2 == 0:
            raise self.error(f"LRN only supports odd values for local_size (={param.local_size})")
        self.within = param.norm_region == caffe_pb2.LRNParameter.WITHIN_CHANNEL
        self.size, self.beta, self.k = param.local_size, param.beta, 1.0 if self.within else param.k
        self.first_axis = 2 if self.within else 1
        if bottom[0].num_axes <= self.first_axis:
            raise self.error(
                "Input must have 4 axes, corresponding to (num, channels, height, width), or another number, "
                f"{self.first_axis + 1} at least; its shape is {bottom[0].shape}",
                ShapeError,
            )
        self.spatial_axes = bottom[0].num_axes - 2
        axes = self.spatial_axes if self.within else 1
        self.scale = param.alpha / self.size**axes

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        shape = bottom[0].shape
        if len(shape) != self.spatial_axes + 2:
            raise self.error(f"bottom num_axes may not change: now shape {shape}", ShapeError)
        top[0].reshape(shape)
        if self.within:
            self.shape, sizes = shape, shape[2:]
        else:
            self.shape, sizes = (*shape[:2], math.prod(shape[2:])), shape[1:2]
        # A window that reaches over both ends sees everything, however much longer it is.
        reach = [min(self.size // 2, max(size - 1, 0)) for size in sizes]
        ones = [1] * len(sizes)
        self.windows = Windows(self.run, sizes, [2 * r + 1 for r in reach], ones, reach, sizes)
        step = max(1, _CHUNK_BYTES // max(1, bottom[0].dtype.itemsize * math.prod(shape[1:])))
        self.chunks = [slice(i, i + step) for i in range(0, shape[0], step)] if bottom[0].count else []

    def _window_sum(self, values: np.ndarray) -> np.ndarray:
        sums = self.run.scratch("lrn_sums", values.shape, values.dtype)
        if self.within:
            self.windows.add_up(values, sums)
        else:
            self.windows.add_up(values.swapaxes(1, 2), sums.swapaxes(1, 2))  # channels last
        return sums

    def _energy(self, x: np.ndarray) -> np.ndarray:
        """s = k + alpha / n · Σ x²."""
        energy = self._window_sum(np.multiply(x, x, out=self.run.scratch("lrn_terms", x.shape, x.dtype)))
        energy *= self.scale
        energy += self.k
        return energy

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return bottom

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0].cpu_data().reshape(self.shape)
        y = top[0].overwrite_cpu_data().reshape(self.shape)
        for part in self.chunks:
            energy = self._energy(x[part])
            np.multiply(x[part], np.power(energy, -self.beta, out=energy), out=y[part])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not propagate_down[0]:
            return
        x, dy = bottom[0].cpu_data().reshape(self.shape), top[0].cpu_diff().reshape(self.shape)
        dx = bottom[0].overwrite_cpu_diff().reshape(self.shape)
        for part in self.chunks:
            energy = self._energy(x[part])
            terms = self.run.scratch("lrn_terms", energy.shape, energy.dtype)
            np.multiply(dy[part], np.power(energy, -self.beta, out=terms), out=dx[part])
            np.multiply(dx[part], x[part], out=terms)
            terms /= energy
            sums = self._window_sum(terms)
            sums *= x[part]
            sums *= 2 * self.scale * self.beta
            dx[part] -= sums
