"""Im2col: what a convolution's window sees, laid out as channels."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..blob import Blob
from ..errors import ShapeError
from ..layer import Layer
from ..layer_registry import register_layer
from ._convolution import Columns, read_window


@register_layer("Im2col")
class Im2colLayer(Layer):
    """y[n, (c, t), o] = x[n, c, stride · o + dilation · t - pad], 0 outside; t runs over the kernel.

    bottom[0]: (N…, C, *S), any real; *S is any number of spatial axes.
    top[0]: (N…, C · Πkernel, *O), O as for Convolution.
    convolution_param: kernel_size, stride (1), pad (0), dilation (1), kernel_h and so on, axis (1), as for
    Convolution; its other fields mean nothing here.

    Gradient: each pixel's is the sum over the places that saw it. Raises LayerError for impossible
    parameters, ShapeError for a bottom smaller than the window. Source: Caffe's Im2col.
    """

    exact_num_bottom = 1
    exact_num_top = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.refuse_in_place(bottom, top)
        self.axis = self.canonical_axis(self.layer_param.convolution_param.axis, bottom[0])
        self.spatial_axes = bottom[0].num_axes - self.axis - 1
        self.window = read_window(self, self.spatial_axes)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        shape, kernel = bottom[0].shape, self.window.kernel
        if len(shape) != self.axis + 1 + self.spatial_axes:
            raise self.error(f"bottom num_axes may not change, now shape {shape}", ShapeError)
        lead, channels, sizes = shape[: self.axis], shape[self.axis], shape[self.axis + 1 :]
        places = self.window.places(sizes)
        if min(places, default=1) < 1:
            raise self.error(
                f"the top would have spatial shape {places}: bottom {sizes}, {self.window}", ShapeError
            )
        top[0].reshape(*lead, channels * math.prod(kernel), *places)
        num = math.prod(lead)
        self.bottom_shape = (num, channels, *sizes)
        self.top_shape = (num, channels, *kernel, *places)
        self.columns = Columns(self.run, self.window, self.bottom_shape, places)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0].cpu_data().reshape(self.bottom_shape)
        y = top[0].overwrite_cpu_data().reshape(self.top_shape)
        for part in self.columns.chunks:
            y[part] = self.columns.windows(x[part])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not propagate_down[0]:
            return
        dy = top[0].cpu_diff().reshape(self.top_shape)
        dx = bottom[0].overwrite_cpu_diff().reshape(self.bottom_shape)
        for part in self.columns.chunks:
            self.columns.add_up(dy[part], dx[part])
