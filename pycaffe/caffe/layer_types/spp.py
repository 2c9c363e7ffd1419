"""SPP: spatial pyramid pooling, a fixed number of outputs for images of any size."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ..blob import Blob
from ..errors import LayerError, ShapeError
from ..layer import Layer
from ..layer_registry import register_layer
from ..proto import caffe_pb2
from .pooling import PoolingLayer


@register_layer("SPP")
class SPPLayer(Layer):
    """y = the poolings of x into 1, 2, 4, … bins per spatial axis, side by side.

    bottom[0]: (N, C, *S), any number of spatial axes. top[0]: (N, C · Σ_l bins_l), level after level, each
    (C, *bins) flattened; with pyramid_height 1 it keeps its axes, (N, C, 1, …).
    Level l has b = 2^l bins per axis: kernel and stride ceil(S / b), pad half of what is missing, rounded up.

    spp_param: pyramid_height (at least 1); pool MAX (default), AVE or STOCHASTIC as for Pooling (the last
    only where S is a multiple of the bins: it allows no padding). engine changes the way, not the result.

    Gradient: the sum of the levels'. Raises LayerError for impossible parameters, ShapeError for an image
    too small for its bins. Source: Caffe's SPP; He et al., ECCV 2014.
    """

    exact_num_bottom = 1
    exact_num_top = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.refuse_in_place(bottom, top)
        param = self.layer_param.spp_param
        if param.pyramid_height < 1:
            raise self.error(f"pyramid_height (={param.pyramid_height}) must be at least 1")
        if bottom[0].num_axes < 3:
            raise self.error(
                "Input must have 4 axes, corresponding to (num, channels, height, width), or another number "
                f"of spatial axes above 0; its shape is {bottom[0].shape}",
                ShapeError,
            )
        self.spatial_axes = bottom[0].num_axes - 2
        height = param.pyramid_height
        if height > min(bottom[0].shape[2:]).bit_length():
            raise self.error(
                f"pyramid_height (={height}) asks for 2^{height - 1} bins per axis, more than the bottom of "
                f"shape {bottom[0].shape} has pixels",
                ShapeError,
            )
        self.levels = [self._level(level) for level in range(param.pyramid_height)]
        self.pooled = [Blob((0,), bottom[0].dtype) for _ in self.levels]
        self.level_bottom = Blob((0,), bottom[0].dtype)  # the bottom's data with one level's diff

    def _level(self, level: int) -> PoolingLayer:
        layer = PoolingLayer(caffe_pb2.LayerParameter(name=f"{self.name}/{level}", type="Pooling"))
        layer.phase, layer.run = self.phase, self.run
        layer.method = self.layer_param.spp_param.pool  # both enums number the methods alike
        return layer

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        shape = bottom[0].shape
        if len(shape) != self.spatial_axes + 2:
            raise self.error(f"bottom num_axes may not change: now shape {shape}", ShapeError)
        for level, (layer, pooled) in enumerate(zip(self.levels, self.pooled, strict=True)):
            bins = 2**level
            layer.kernel = layer.stride = tuple(-(-size // bins) for size in shape[2:])
            layer.pad = tuple(
                (k * bins - size + 1) // 2 for k, size in zip(layer.kernel, shape[2:], strict=True)
            )
            try:
                layer.shape_windows(bottom[0], [pooled])
            except LayerError as error:
                raise self.error(
                    f"level {level} of the pyramid has {bins} bins per axis, which images of {shape[2:]} "
                    f"do not allow: {error.message}",
                    ShapeError,
                ) from None
        self.level_bottom.reshape(shape)
        if len(self.levels) == 1:
            top[0].reshape(self.pooled[0].shape)
            self.parts = [slice(None)]
        else:
            ends = list(itertools.accumulate(blob.axis_count(1) for blob in self.pooled))
            top[0].reshape(shape[0], ends[-1])
            self.parts = [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for layer, pooled in zip(self.levels, self.pooled, strict=True):
            layer.forward(bottom, [pooled])
        y = top[0].overwrite_cpu_data()
        for blob, part in zip(self.pooled, self.parts, strict=True):
            y[:, part] = blob.cpu_data().reshape(y[:, part].shape)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not propagate_down[0]:
            return
        dy, level_bottom = top[0].cpu_diff(), self.level_bottom
        level_bottom.share_data(bottom[0])
        for layer, pooled, part in zip(self.levels, self.pooled, self.parts, strict=True):
            pooled_diff = pooled.overwrite_cpu_diff()
            pooled_diff[...] = dy[:, part].reshape(pooled_diff.shape)
            layer.backward([pooled], propagate_down, [level_bottom])
            if layer is self.levels[0]:
                bottom[0].overwrite_cpu_diff()[...] = level_bottom.cpu_diff()
            else:
                bottom[0].mutable_cpu_diff()[...] += level_bottom.cpu_diff()
