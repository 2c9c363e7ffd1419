"""Layers that move numbers and compute little: Concat, Slice, Split, Flatten, Reshape, Tile, Crop,
Silence."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from .base import CudaKernel, arithmetic, upload
from .place import copy, read, write, zero


class Shared(CudaKernel):
    """Top and bottom are one array: nothing to do."""

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return ()

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        pass

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        pass


@kernel("Flatten", engine="cuda")
class FlattenKernel(Shared):
    pass


@kernel("Reshape", engine="cuda")
class ReshapeKernel(Shared):
    pass


@kernel("Split", engine="cuda")
class SplitKernel(Shared):
    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if not propagate_down[0]:
            return
        count, first, *rest = bottom[0].count, *(read(blob.diff_mem) for blob in top)
        dx = write(bottom[0].diff_mem)
        if not rest:
            copy(first, dx, count)
        for diff in rest:
            arithmetic().add.elements(count, first, diff, dx)
            first = dx


class Joined(CudaKernel):
    """Parts that lie one after the other along an axis of a whole."""

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return ()

    def _prepare(self, whole: Blob, parts: Sequence[Blob]) -> None:
        axis = next((i for i, n in enumerate(whole.shape) if any(p.shape[i] != n for p in parts)), 0)
        along, inner = whole.shape[axis] if whole.num_axes else 1, math.prod(whole.shape[axis + 1 :])
        self.parts, begin = [], 0
        for part in parts:
            size = part.shape[axis] if part.num_axes else 1
            self.parts.append((part, (along, begin, size, inner)))
            begin += size

    def _split(self, whole: int, which: str, wanted: Sequence[bool]) -> None:
        for (part, place), asked in zip(self.parts, wanted, strict=True):
            if asked:
                target = write(getattr(part, which))
                arithmetic().copy_out.elements(part.count, whole, target, *place)

    def _join(self, whole: int, which: str) -> None:
        for part, place in self.parts:
            arithmetic().copy_in.elements(part.count, read(getattr(part, which)), whole, *place)


@kernel("Concat", engine="cuda")
class ConcatKernel(Joined):
    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._prepare(top[0], bottom)

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if len(bottom) > 1:
            self._join(write(top[0].data_mem), "data_mem")

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if len(bottom) > 1:
            self._split(read(top[0].diff_mem), "diff_mem", propagate_down)


@kernel("Slice", engine="cuda")
class SliceKernel(Joined):
    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._prepare(bottom[0], top)

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if len(top) > 1:
            self._split(read(bottom[0].data_mem), "data_mem", [True] * len(top))

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if propagate_down[0] and len(top) > 1:
            self._join(write(bottom[0].diff_mem), "diff_mem")


@kernel("Tile", engine="cuda")
class TileKernel(CudaKernel):
    source = "tile"

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer.layer_param.tile_param
        self.constants = (param.tiles, bottom[0].axis_count(bottom[0].canonical_axis(param.axis)))

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = read(bottom[0].data_mem)
        self.code.forward.elements(top[0].count, x, write(top[0].data_mem), *self.constants)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if propagate_down[0]:
            dy = read(top[0].diff_mem)
            self.code.backward.elements(bottom[0].count, dy, write(bottom[0].diff_mem), *self.constants)


@kernel("Crop", engine="cuda")
class CropKernel(CudaKernel):
    source = "crop"

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        whole, begins = bottom[0].shape, [part.start or 0 for part in self.layer.part]
        strides = [math.prod(whole[i + 1 :]) for i in range(len(whole))]
        numbers = np.array(list(zip(top[0].shape, begins, strides, strict=True)), np.int32)
        self._geometry, self.axes = upload(numbers), len(whole)

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, y = read(bottom[0].data_mem), write(top[0].data_mem)
        self.code.copy_out.elements(top[0].count, x, y, self._geometry.address, self.axes)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if propagate_down[0]:
            dy, dx = read(top[0].diff_mem), zero(bottom[0].diff_mem)
            self.code.copy_in.elements(top[0].count, dy, dx, self._geometry.address, self.axes)
        if propagate_down[1]:
            zero(bottom[1].diff_mem)


@kernel("Silence", engine="cuda")
class SilenceKernel(Shared):
    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        for blob, wanted in zip(bottom, propagate_down, strict=True):
            if wanted:
                zero(blob.diff_mem)
