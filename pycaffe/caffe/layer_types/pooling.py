"""Pooling: one value for each window that slides over the bottom."""

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

MAX = caffe_pb2.PoolingParameter.MAX
AVE = caffe_pb2.PoolingParameter.AVE
STOCHASTIC = caffe_pb2.PoolingParameter.STOCHASTIC

# Images worked on at a time: so many bytes stay in a cache, and bound what backward needs.
_CHUNK_BYTES = 1 << 20


@register_layer("Pooling")
class PoolingLayer(Layer):
    """y[n, c, o] = max, mean or a random draw of x[n, c, i] over the window at stride · o - pad.

    bottom[0]: (N, C, *S), any number of spatial axes. Any real; STOCHASTIC is meant for x >= 0.
    top[0]: (N, C, *O), O = ceil((S + 2 pad - kernel) / stride) + 1, one less where the last window would
    then start beyond the image and the padding before it (checked only when there is padding).
    top[1], MAX only: the index of the maximum within its plane, row by row; -1 where there is none.

    pooling_param.pool:
        MAX (default). Padding never wins. Of equal values the first in scan order counts.
        AVE: divides by the window's size up to the end of the padding, padding included.
        STOCHASTIC: in TRAIN one x of the window, drawn with probability x / Σ x; in TEST the expected
            value Σ x² / Σ x, 0 where all are 0. Negative values count as never drawn.
    kernel_size, stride (1), pad (0), or for two spatial axes kernel_h and kernel_w and so on; pad must be
    smaller than the kernel, and 0 for STOCHASTIC. global_pooling: the window is the whole plane.
    round_mode: CEIL (default) or FLOOR. engine changes the way, not the result.

    Without padding the last window may lie outside the image (stride > kernel): MAX gives -FLT_MAX, AVE
    NaN, STOCHASTIC 0, all without gradient.

    Gradient: MAX and TRAIN's STOCHASTIC hand top' to the pixel that was chosen, AVE shares it equally, TEST's
    STOCHASTIC gives top' · (2 x - y) / Σ x where x > 0. Raises LayerError for impossible parameters,
    ShapeError for a bottom without spatial axes or smaller than the window.
    Source: Caffe's Pooling; Zeiler and Fergus, ICLR 2013, for STOCHASTIC.
    """

    exact_num_bottom = 1
    min_top = 1
    max_top = 2
    global_pooling = False

    # -- parameters and shapes --------------------------------------------------------------------

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.refuse_in_place(bottom, top)
        param = self.layer_param.pooling_param
        self.method: int = param.pool
        if len(top) > 1 and self.method != MAX:
            raise self.error("only MAX has a second top, the index of the maximum")
        self.spatial_axes = bottom[0].num_axes - 2
        if self.spatial_axes < 1:
            raise self.error(
                "Input must have 4 axes, corresponding to (num, channels, height, width), or another number "
                f"of spatial axes above 0; its shape is {bottom[0].shape}",
                ShapeError,
            )
        self.global_pooling = param.global_pooling
        self.kernel = self._per_axis(
            "kernel", "kernel_size", "Filter size is kernel_size OR kernel_h and kernel_w"
        )
        self.stride = self._per_axis("stride", "stride", "Stride is stride OR stride_h and stride_w")
        self.pad = self._per_axis("pad", "pad", "pad is pad OR pad_h and pad_w")
        if 0 in self.stride:
            raise self.error(f"Stride dimensions cannot be zero: {self.stride}")
        if self.global_pooling and (any(self.pad) or set(self.stride) != {1}):
            raise self.error(
                "With Global_pooling: true; only pad = 0 and stride = 1, "
                f"but pad is {self.pad} and stride {self.stride}"
            )
        if 0 in self.kernel:
            raise self.error(f"Filter dimensions cannot be zero: {self.kernel}")

    def _per_axis(self, stem: str, name: str, rule: str) -> tuple[int, ...]:
        param = self.layer_param.pooling_param
        names = (f"{stem}_h", f"{stem}_w")
        given = [field for field in (name, *names) if param.HasField(field)]
        if stem == "kernel" and self.global_pooling:
            if given:
                raise self.error(
                    f"With Global_pooling: true Filter size cannot specified: leave out {given[0]}"
                )
            return ()
        if given == list(names):
            if self.spatial_axes != 2:
                raise self.error(
                    f"{names[0]} & {names[1]} can only be used for 2D pooling, and the bottom has "
                    f"{self.spatial_axes} spatial axes: use {name}"
                )
            return tuple(getattr(param, field) for field in names)
        if given not in ([name], []) or (stem == "kernel" and not given):
            raise self.error(
                f"{rule}; not both, and not one of the two alone (given: {', '.join(given) or 'none'})"
            )
        return (getattr(param, name),) * self.spatial_axes

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        shape = bottom[0].shape
        if len(shape) != self.spatial_axes + 2:
            raise self.error(f"bottom num_axes may not change: now shape {shape}", ShapeError)
        if self.global_pooling:
            self.kernel = shape[2:]
        self.shape_windows(bottom[0], top)

    def shape_windows(self, bottom: Blob, top: Sequence[Blob]) -> None:
        """Shape the tops for windows of this layer's kernel, stride and pad."""
        shape, sizes = bottom.shape, bottom.shape[2:]
        if min(sizes) < 1:
            raise self.error(f"the bottom of shape {shape} has no pixels to pool", ShapeError)
        if any(self.pad) and self.method == STOCHASTIC:
            raise self.error("Padding implemented only for average and max pooling.")
        if not self.global_pooling and any(p >= k for p, k in zip(self.pad, self.kernel, strict=True)):
            raise self.error(f"pad {self.pad} must be smaller than the kernel {self.kernel}")
        places = self._places(sizes)
        if min(places) < 1:
            raise self.error(
                f"the top would have spatial shape {places}: bottom {sizes}, kernel {self.kernel}, "
                f"stride {self.stride}, pad {self.pad}",
                ShapeError,
            )
        for blob in top:
            blob.reshape(*shape[:2], *places)
            self.check_memory(blob, "the top")
        self.windows = windows = Windows(self.run, sizes, self.kernel, self.stride, self.pad, places)
        step = max(1, _CHUNK_BYTES // max(1, bottom.dtype.itemsize * math.prod(shape[1:])))
        self.chunks = [slice(i, i + step) for i in range(0, shape[0], step)]
        if self.method == AVE:
            with np.errstate(divide="ignore"):
                scale = 1 / windows.divisors
            self.scale = np.where(windows.divisors == 0, np.nan, scale).astype(bottom.dtype)
        else:
            self.chosen = np.empty((*shape[:2], *places), windows.mark_type)

    def _places(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        floor = self.layer_param.pooling_param.round_mode == caffe_pb2.PoolingParameter.FLOOR
        places = []
        for n, k, s, p in zip(sizes, self.kernel, self.stride, self.pad, strict=True):
            span = n + 2 * p - k
            count = (span // s if floor else -(-span // s)) + 1
            # The last window must start inside the image or the padding before it.
            if any(self.pad) and (count - 1) * s >= n + p:
                count -= 1
            places.append(count)
        return tuple(places)

    # -- values -----------------------------------------------------------------------------------

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return () if self.method == AVE or self.phase == caffe_pb2.TRAIN else bottom

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, y = bottom[0].cpu_data(), top[0].overwrite_cpu_data()
        training = self.phase == caffe_pb2.TRAIN
        if self.method == AVE:
            for part in self.chunks:
                self.windows.add_up(x[part], y[part])
                y[part] *= self.scale
        elif self.method == MAX:
            self.remembers = training or len(top) > 1
            for part in self.chunks:
                self.windows.maximum(x[part], y[part], self.chosen[part] if self.remembers else None)
            if len(top) > 1:
                mask = top[1].overwrite_cpu_data()
                for part in self.chunks:
                    mask[part] = self.windows.sources(self.chosen[part])
        elif training:
            bits = self.run.bits32(self.name, y.size).reshape(y.shape)
            for part in self.chunks:
                uniform = (bits[part] >> 8) * y.dtype.type(2**-24)
                self.windows.draw(np.maximum(x[part], 0), uniform, self.chosen[part])
                self.windows.gather(self.chosen[part], x[part], y[part])
        else:
            for part in self.chunks:
                y[part] = self._expectation(np.maximum(x[part], 0), y[part].shape)[0]

    def _expectation(self, weights: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Σ w² / Σ w of each window, and 1 / Σ w; both 0 where all w are 0."""
        total, squares = np.empty(shape, weights.dtype), np.empty(shape, weights.dtype)
        self.windows.add_up(weights, total)
        self.windows.add_up(weights * weights, squares)
        inverse = np.divide(1, total, out=np.zeros_like(total), where=total > 0)
        return squares * inverse, inverse

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not propagate_down[0]:
            return
        dy, dx = top[0].cpu_diff(), bottom[0].overwrite_cpu_diff()
        if self.method == AVE:
            for part in self.chunks:
                self.windows.spread(dy[part] * self.scale, dx[part])
        elif self.method == STOCHASTIC and self.phase == caffe_pb2.TEST:
            x = bottom[0].cpu_data()
            for part in self.chunks:
                weights = np.maximum(x[part], 0)
                mean, inverse = self._expectation(weights, dy[part].shape)
                other = np.empty_like(weights)
                self.windows.spread(dy[part] * inverse, dx[part])
                self.windows.spread(dy[part] * inverse * mean, other)
                dx[part] *= 2 * weights
                dx[part] -= other
                dx[part] *= weights > 0
        else:
            if self.method == MAX and not self.remembers:
                x = bottom[0].cpu_data()
                for part in self.chunks:
                    chosen = self.chosen[part]
                    self.windows.maximum(x[part], self.run.scratch("maxima", chosen.shape, x.dtype), chosen)
                self.remembers = True
            for part in self.chunks:
                self.windows.scatter(self.chosen[part], dy[part], dx[part])
