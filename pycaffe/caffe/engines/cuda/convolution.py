"""Convolution, Deconvolution and Im2col: columns, and matrix products by cuBLAS. Up to three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from .base import CudaKernel, arithmetic, scratch, three
from .cublas import cublas
from .place import accumulate, read, write

# Memory for the columns of as many images at a time as it holds.
COLUMN_BYTES = 256 << 20


def geometry(layer: Any, sizes: Sequence[int], places: Sequence[int]) -> tuple[int, ...]:
    """The last 18 arguments of im2col and col2im."""
    window = layer.window
    return (
        *three(sizes, 1),
        *three(window.kernel, 1),
        *three(window.stride, 1),
        *three(window.pad, 0),
        *three(window.dilation, 1),
        *three(places, 1),
    )


class ConvolutionKernel(CudaKernel):
    """Between images (N, C, *S), over which the window slides, and features (N, F, *P), one for each of its
    places.

    weights: (F, C / group · taps). Convolution goes from images to features, Deconvolution the other way.
    """

    source = "im2col"
    transposed = False

    @classmethod
    def supports(cls, layer: Any, bottom: Sequence[Blob]) -> bool:
        window = layer.window
        numbers = (*window.kernel, *window.stride, *window.pad, *window.dilation)
        columns = math.prod(layer.bottom_shape[1:]) * math.prod(window.kernel)
        fits = layer.spatial_axes <= 3 and max(numbers, default=0) < 2**15 and columns < 2**31
        return fits and super().supports(layer, bottom)

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer = self.layer
        image, features = layer.bottom_shape, layer.top_shape
        if self.transposed:
            image, features = features, image
        self.num, self.channels, *sizes = image
        self.features, *places = features[1:]
        self.group, window = layer.group, layer.window
        self.pixels, self.places = math.prod(sizes), math.prod(places)
        self.rows = self.channels // self.group * math.prod(window.kernel)
        self.geometry = geometry(layer, sizes, places)
        # An image is its own columns.
        self.pointwise = (
            tuple(sizes) == tuple(places) and math.prod(window.kernel) == 1 and not any(window.pad)
        )
        per_image = 4 * self.group * self.rows * self.places
        self.at_once = max(1, min(self.num, COLUMN_BYTES // max(per_image, 1)))

    def _parts(self) -> Iterator[tuple[int, int]]:
        """(first image, number of images)"""
        for start in range(0, self.num, self.at_once):
            yield start, min(self.at_once, self.num - start)

    def _columns(self, run: ExecutionContext) -> int:
        return scratch(run, "columns", self.at_once * self.group * self.rows * self.places)

    def _unfold(self, run: ExecutionContext, image: int, start: int, count: int) -> int:
        """Address of the columns of images from start on."""
        image += 4 * start * self.channels * self.pixels
        if self.pointwise:
            return image
        columns = self._columns(run)
        self.code.im2col.elements(count * self.channels * self.places, image, columns, *self.geometry)
        return columns

    def to_features(self, run: ExecutionContext, weights: int, image: int, features: int) -> None:
        """features = weights · columns of image"""
        per_group, rows, places, group = self.features // self.group, self.rows, self.places, self.group
        for start, count in self._parts():
            columns = self._unfold(run, image, start, count)
            target = features + 4 * start * self.features * places
            for g in range(group):
                cublas().batched(
                    weights + 4 * g * per_group * rows,
                    columns + 4 * g * rows * places,
                    target + 4 * g * per_group * places,
                    per_group,
                    places,
                    rows,
                    (0, group * rows * places, self.features * places),
                    count,
                )

    def to_image(self, run: ExecutionContext, weights: int, features: int, image: int) -> None:
        """image = each column of weightsᵀ · features added up where the window saw it"""
        per_group, rows, places, group = self.features // self.group, self.rows, self.places, self.group
        for start, count in self._parts():
            source, target = (
                features + 4 * start * self.features * places,
                image + 4 * start * self.channels * self.pixels,
            )
            columns = target if self.pointwise else self._columns(run)
            for g in range(group):
                cublas().batched(
                    weights + 4 * g * per_group * rows,
                    source + 4 * g * per_group * places,
                    columns + 4 * g * rows * places,
                    rows,
                    places,
                    per_group,
                    (0, self.features * places, group * rows * places),
                    count,
                    ta=True,
                )
            if not self.pointwise:
                self.code.col2im.elements(
                    count * self.channels * self.pixels, columns, target, *self.geometry
                )

    def add_gradient(
        self, run: ExecutionContext, features: int, image: int, weights_diff: int, before: float
    ) -> None:
        """weights_diff = before · weights_diff + Σ features · columnsᵀ"""
        per_group, rows, places = self.features // self.group, self.rows, self.places
        for start, count in self._parts():
            columns = self._unfold(run, image, start, count)
            for i in range(count):
                for g in range(self.group):
                    cublas().gemm(
                        features + 4 * ((start + i) * self.features + g * per_group) * places,
                        columns + 4 * (i * self.group + g) * rows * places,
                        weights_diff + 4 * g * per_group * rows,
                        per_group,
                        rows,
                        places,
                        1.0 if start or i else before,
                        tb=True,
                    )

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return bottom

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer, weights = self.layer, read(self.layer.blobs[0].data_mem)
        move = self.to_image if self.transposed else self.to_features
        for source, target in zip(bottom, top, strict=True):
            x = read(source.data_mem)
            y = write(target.data_mem)
            move(run, weights, x, y)
            if layer.bias_term:
                _, channels, *sizes = layer.top_shape
                bias = read(layer.blobs[1].data_mem)
                arithmetic().add_repeated.elements(target.count, y, bias, channels, math.prod(sizes))

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        layer, weights = self.layer, read(self.layer.blobs[0].data_mem)
        move = self.to_features if self.transposed else self.to_image
        num, channels, *sizes = layer.top_shape
        for target, down, source in zip(top, propagate_down, bottom, strict=True):
            dy = read(target.diff_mem)
            if layer.bias_term and layer.param_propagate_down[1]:
                total, before = accumulate(layer.blobs[1])
                inner = math.prod(sizes)
                arithmetic().block_total.rows(channels, num * inner, dy, total, num, inner, before)
            if layer.param_propagate_down[0] and num:
                x = read(source.data_mem)
                features, image = (x, dy) if self.transposed else (dy, x)
                diff, before = accumulate(layer.blobs[0])
                self.add_gradient(run, features, image, diff, before)
            if down:
                move(run, weights, dy, write(source.diff_mem))


@kernel("Convolution", engine="cuda")
class ConvolutionForward(ConvolutionKernel):
    pass


@kernel("Deconvolution", engine="cuda")
class DeconvolutionKernel(ConvolutionKernel):
    transposed = True


@kernel("Im2col", engine="cuda")
class Im2colKernel(CudaKernel):
    source = "im2col"

    @classmethod
    def supports(cls, layer: Any, bottom: Sequence[Blob]) -> bool:
        window = layer.window
        numbers = (*window.kernel, *window.stride, *window.pad, *window.dilation)
        return layer.spatial_axes <= 3 and max(numbers, default=0) < 2**15 and super().supports(layer, bottom)

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer, axes = self.layer, self.layer.spatial_axes
        sizes, places = layer.bottom_shape[2:], layer.top_shape[2 + axes :]
        self.planes = layer.bottom_shape[0] * layer.bottom_shape[1]
        self.places, self.geometry = math.prod(places), geometry(layer, sizes, places)

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = read(bottom[0].data_mem)
        self.code.im2col.elements(self.planes * self.places, x, write(top[0].data_mem), *self.geometry)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if propagate_down[0]:
            dy = read(top[0].diff_mem)
            self.code.col2im.elements(bottom[0].count, dy, write(bottom[0].diff_mem), *self.geometry)
