"""What Convolution, Deconvolution and Im2col share: windows over spatial axes, and images as columns.

Both convolutions are one matrix product. With an image (N, C, *S) and windows at output positions *O,

    unfold(image)        (group, C/group · Πkernel, N · ΠO)   one column for each place of the window
    features             (group, K/group, N · ΠO)             one column for each output position
    weights              (group, K/group, C/group · Πkernel)

    features = weights · unfold(image)            Convolution forward, Deconvolution backward
    image    = fold(weightsᵀ · features)          Deconvolution forward, Convolution backward
    weights' diff += features · unfold(image)ᵀ    both

where fold, the transpose of unfold, adds each column up at the place it was taken from.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..blob import Blob
from ..errors import ShapeError
from ..execution import ExecutionContext
from ..layer import Layer

# Columns made at a time: few enough to stay in a cache, many enough to keep a matrix product busy.
_CHUNK_BYTES = 4 << 20
_CHUNK_IMAGES = 32


@dataclass(frozen=True)
class Window:
    """A kernel's size, stride, padding (zeros on both sides) and dilation, per spatial axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def extent(self) -> tuple[int, ...]:
        """Pixels from the first to the last tap: dilation · (kernel - 1) + 1."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def places(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """How many windows fit: (size + 2 pad - extent) / stride + 1, the quotient rounded towards 0.

        So a kernel may reach over the padded image by less than a stride, as in the original; what
        lies outside counts as zero.
        """
        spans = (n + 2 * p - e for n, p, e in zip(sizes, self.pad, self.extent, strict=True))
        return tuple(int(span / s) + 1 for span, s in zip(spans, self.stride, strict=True))

    def covered(self, places: Sequence[int]) -> tuple[int, ...]:
        """The image that so many windows cover: stride · (places - 1) + extent - 2 pad."""
        return tuple(
            s * (n - 1) + e - 2 * p
            for n, s, e, p in zip(places, self.stride, self.extent, self.pad, strict=True)
        )


def read_window(layer: Layer, spatial_axes: int) -> Window:
    """The window that layer's convolution_param describes, for that many spatial axes.

    kernel_size, stride (1), pad (0) and dilation (1) are given once for all axes, or once per axis;
    with two spatial axes also as kernel_h, kernel_w and so on. Raises LayerError otherwise.
    """
    param = layer.layer_param.convolution_param

    def per_axis(name: str, stem: str, default: int) -> tuple[int, ...]:
        given = list(getattr(param, name))
        fields = (f"{stem}_h", f"{stem}_w")
        if stem and any(param.HasField(field) for field in fields):
            if spatial_axes != 2:
                raise layer.error(
                    f"{fields[0]} & {fields[1]} can only be used for 2D convolution, and the bottom has "
                    f"{spatial_axes} spatial axes: give {name} once per axis"
                )
            if given:
                raise layer.error(f"Either {name} or {stem}_h/w should be specified; not both.")
            return tuple(getattr(param, field) for field in fields)
        if not given and default:
            given = [default]
        elif not given and name == "pad":
            given = [0]
        if len(given) not in (1, spatial_axes):
            raise layer.error(
                f"{name} must be specified once, or once per spatial dimension "
                f"({name} specified {len(given)} times; {spatial_axes} spatial dims)."
            )
        return tuple(given * spatial_axes if len(given) == 1 else given)

    window = Window(
        kernel=per_axis("kernel_size", "kernel", 0),
        stride=per_axis("stride", "stride", 1),
        pad=per_axis("pad", "pad", 0),
        dilation=per_axis("dilation", "", 1),
    )
    for values, words in (
        (window.kernel, "Filter dimensions must be nonzero."),
        (window.stride, "Stride dimensions must be nonzero."),
        (window.dilation, "Dilation must be nonzero."),
    ):
        if 0 in values:
            raise layer.error(f"{words} (given: {' '.join(map(str, values))})")
    return window


class Columns:
    """unfold, fold and the three products, for images of one shape (N, C, *S) under one window.

    A chunk of images at a time, so that memory stays bounded; `chunks` are its slices. Scratch memory
    comes from run. In memory the images stand beside the channels, or innermost where that makes the
    runs that are copied longer: many small images. All views have the axes (N, C, ...) nevertheless.
    """

    def __init__(
        self,
        run: ExecutionContext,
        window: Window,
        shape: Sequence[int],
        places: Sequence[int],
        group: int = 1,
    ):
        num, channels, *sizes = shape
        self.run, self.window, self.group = run, window, group
        self.channels, self.places = channels, tuple(places)
        self.rows = channels // group * math.prod(window.kernel)
        reach = window.covered(places)
        self.padded = tuple(max(n, r) + 2 * p for n, r, p in zip(sizes, reach, window.pad, strict=True))
        self.interior = (..., *(slice(p, p + n) for n, p in zip(sizes, window.pad, strict=True)))

        bytes_per_image = 4 * group * self.rows * math.prod(places)
        step = max(1, min(num, _CHUNK_IMAGES, _CHUNK_BYTES // max(bytes_per_image, 1)))
        self.chunks = [slice(i, min(i + step, num)) for i in range(0, num, step)]
        self.images_last = bool(places) and step >= 2 * places[-1]
        unpadded = self.padded == tuple(sizes)
        # An image is its own columns; windows may look at the images where they are.
        self.pointwise = unpadded and self.places == self.padded and math.prod(window.kernel) == 1
        self.bare = unpadded and (self.pointwise or not self.images_last)

    @cached_property
    def taps(self) -> list[tuple[tuple, tuple]]:
        """For each tap of the kernel: its part of the columns, and where it lies in the padded image."""
        window, everywhere = self.window, [slice(None)] * len(self.places)
        steps = zip(window.kernel, window.dilation, window.stride, self.places, strict=True)
        seen = [[slice(t * d, t * d + s * (n - 1) + 1, s) for t in range(k)] for k, d, s, n in steps]
        taps = itertools.product(*map(range, window.kernel))
        return [
            ((..., *tap, *everywhere), (..., *place))
            for tap, place in zip(taps, itertools.product(*seen), strict=True)
        ]

    # -- memory -----------------------------------------------------------------------------------

    def _scratch(
        self, use: str, num: int, lead: tuple[int, ...], spatial: tuple[int, ...], dtype: np.dtype
    ) -> tuple[np.ndarray, np.ndarray]:
        """Memory for num images, as (group, rows, columns) and viewed as (N, *lead, *spatial)."""
        if self.images_last:
            memory, axis = self.run.scratch(use, (*lead, *spatial, num), dtype), len(lead) + len(spatial)
        else:
            memory, axis = self.run.scratch(use, (*lead, num, *spatial), dtype), len(lead)
        view = memory.transpose(axis, *range(axis), *range(axis + 1, memory.ndim))
        rows = math.prod(lead) // self.group
        return memory.reshape(self.group, rows, num * math.prod(spatial)), view

    def _image(self, num: int, dtype: np.dtype) -> np.ndarray:
        return self._scratch("image", num, (self.channels,), self.padded, dtype)[1]

    # -- images and columns -----------------------------------------------------------------------

    def windows(self, images: np.ndarray) -> np.ndarray:
        """What the window sees at each place: (N, C, *kernel, *O), a view to read."""
        if not self.bare:
            padded = self._image(len(images), images.dtype)
            padded[...] = 0
            padded[self.interior] = images
            images = padded
        n, c, *steps = images.strides
        window = self.window
        strides = (
            *(step * d for step, d in zip(steps, window.dilation, strict=True)),
            *(step * s for step, s in zip(steps, window.stride, strict=True)),
        )
        shape = (*images.shape[:2], *window.kernel, *self.places)
        return as_strided(images, shape, (n, c, *strides), writeable=False)

    def add_up(self, columns: np.ndarray, images: np.ndarray) -> None:
        """The transpose of windows: images[...] = each column added up where it was seen."""
        target = images if self.bare else self._image(len(images), images.dtype)
        target[...] = 0
        for tap, place in self.taps:
            target[place] += columns[tap]
        if target is not images:
            images[...] = target[self.interior]

    def unfold(self, images: np.ndarray) -> np.ndarray:
        """(group, C/group · Πkernel, N · ΠO) of images (N, C, *S)."""
        matrix, view = self._columns(images)
        if view is not images:
            np.copyto(view, self.windows(images))
        return matrix

    def fold(self, weights: np.ndarray, features: np.ndarray, images: np.ndarray) -> None:
        """images[...] = the fold of weightsᵀ · features, features as a matrix."""
        matrix, view = self._columns(images)
        np.matmul(weights.transpose(0, 2, 1), features, out=matrix)
        if view is not images:
            self.add_up(view, images)

    def _columns(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Memory for their columns, as _scratch gives it: a single image's own where those are the image."""
        if self.pointwise and len(images) == 1:
            return images.reshape(self.group, self.rows, -1), images
        lead = (self.channels, *self.window.kernel)
        return self._scratch("columns", len(images), lead, self.places, images.dtype)

    # -- features ---------------------------------------------------------------------------------

    def matrix(self, features: np.ndarray) -> np.ndarray:
        """(group, K/group, N · ΠO) of features (N, K, *O)."""
        matrix, view = self._features(features)
        if view is not features:
            np.copyto(view, features)
        return matrix

    def multiply(self, weights: np.ndarray, columns: np.ndarray, features: np.ndarray) -> None:
        """features[...] = weights · columns, columns as unfold gives them."""
        matrix, view = self._features(features)
        np.matmul(weights, columns, out=matrix)
        if view is not features:
            np.copyto(features, view)

    def _features(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Memory for their matrix, as _scratch gives it: a single image's own."""
        num, outputs = features.shape[:2]
        if num == 1:
            return features.reshape(self.group, outputs // self.group, -1), features
        return self._scratch("features", num, (outputs,), self.places, features.dtype)

    def add_product(self, features: np.ndarray, columns: np.ndarray, weights_diff: np.ndarray) -> None:
        """weights_diff += features · columnsᵀ, both as matrices."""
        product = self.run.scratch("weights_diff", weights_diff.shape, weights_diff.dtype)
        np.matmul(features, columns.transpose(0, 2, 1), out=product)
        weights_diff += product


class BaseConvolution(Layer):
    """Parameters and shapes of Convolution and Deconvolution.

    Attributes for kernels: window, axis, spatial_axes, group, channels, num_output, bias_term.
    """

    min_bottom = 1
    min_top = 1
    equal_num_bottom_top = True
    transposed = False  # the top, not the bottom, is the image under the window

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.refuse_in_place(bottom, top)
        param = self.layer_param.convolution_param
        self.axis = self.canonical_axis(param.axis, bottom[0])
        self.spatial_axes = bottom[0].num_axes - self.axis - 1
        self.window = read_window(self, self.spatial_axes)
        self.group, self.num_output, self.bias_term = param.group, param.num_output, param.bias_term
        self.channels = bottom[0].shape[self.axis]
        if self.num_output < 1:
            raise self.error(f"num_output (={self.num_output}) must be at least 1")
        if self.channels < 1:
            raise self.error(
                f"the bottom's axis {self.axis} must hold channels: shape {bottom[0].shape}", ShapeError
            )
        for name, value in (("channels", self.channels), ("num_output", self.num_output)):
            if self.group < 1 or value % self.group:
                raise self.error(f"{name} (={value}) must be divisible by group (={self.group})")
        self._output(bottom[0].shape[self.axis + 1 :])  # before memory is spent on a kernel that cannot fit
        features, channels = self.num_output, self.channels
        if self.transposed:
            features, channels = channels, features
        shape = (features, channels // self.group, *self.window.kernel)
        self.add_parameter(shape, param.weight_filler)
        self.matrix_shape = (self.group, features // self.group, math.prod(shape[1:]))
        if self.bias_term:
            self.add_parameter((self.num_output,), param.bias_filler)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        shape = bottom[0].shape
        if len(shape) != self.axis + 1 + self.spatial_axes:
            raise self.error(
                f"bottom num_axes may not change: {self.axis + 1 + self.spatial_axes} at first, "
                f"now shape {shape}",
                ShapeError,
            )
        if shape[self.axis] != self.channels:
            raise self.error(
                f"Input size incompatible with convolution kernel: {self.channels} channels at "
                f"first, now {shape[self.axis]} in shape {shape}",
                ShapeError,
            )
        for i, blob in enumerate(bottom):
            if blob.shape != shape:
                raise self.error(
                    f"shape mismatch - bottom[0]: {bottom[0].shape_string} vs. "
                    f"bottom[{i}]: {blob.shape_string}",
                    ShapeError,
                )
        sizes = shape[self.axis + 1 :]
        output = self._output(sizes)
        for blob in top:
            blob.reshape(*shape[: self.axis], self.num_output, *output)
        num = math.prod(shape[: self.axis])
        self.bottom_shape = (num, self.channels, *sizes)
        self.top_shape = (num, self.num_output, *output)
        image, places = (self.top_shape, sizes) if self.transposed else (self.bottom_shape, output)
        self.columns = Columns(self.run, self.window, image, places, self.group)

    def _output(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """The top's spatial shape for a bottom's."""
        window = self.window
        output = window.covered(sizes) if self.transposed else window.places(sizes)
        if min(output, default=1) < 1:
            raise self.error(
                f"the top would have spatial shape {output}: bottom {sizes}, kernel {window.kernel}, "
                f"stride {window.stride}, pad {window.pad}, dilation {window.dilation}",
                ShapeError,
            )
        return output

    def weights(self) -> np.ndarray:
        return self.blobs[0].cpu_data().reshape(self.matrix_shape)

    def weights_diff(self) -> np.ndarray:
        return self.blobs[0].mutable_cpu_diff().reshape(self.matrix_shape)

    def add_bias(self, top: np.ndarray) -> None:
        if self.bias_term:
            top += self.blobs[1].cpu_data().reshape(-1, *[1] * self.spatial_axes)

    def backward_bias(self, top_diff: np.ndarray) -> None:
        if self.bias_term and self.param_propagate_down[1]:
            axes = (0, *range(2, top_diff.ndim))
            self.blobs[1].mutable_cpu_diff()[...] += top_diff.sum(axis=axes)
