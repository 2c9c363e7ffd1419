"""What the engine's kernels share: their .cu file, scratch memory, and small uploads."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import Kernel
from ...layer import Layer
from . import driver
from .compiler import MOST_ELEMENTS, Module, module
from .place import Buffer


class CudaKernel(Kernel):
    """A kernel of this engine. code: the functions of cuda_kernels/<source>.cu."""

    source: ClassVar[str] = ""
    layer: Any

    def __init__(self, layer: Layer, propagate_down: Sequence[bool] = ()):
        super().__init__(layer, propagate_down)
        driver.device()
        driver.check_device()
        if self.source:
            self.code: Module = module(self.source)

    @classmethod
    def supports(cls, layer: Any, bottom: Sequence[Blob]) -> bool:
        return all(b.dtype == np.float32 and b.count < MOST_ELEMENTS for b in (*bottom, *layer.blobs))

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        """Without a gradient of its own, the layer says what it says on the CPU."""
        self.layer.backward(top, propagate_down, bottom)


def arithmetic() -> Module:
    """The functions of math.cu."""
    return module("math")


_scratch: weakref.WeakKeyDictionary[ExecutionContext, dict[str, Buffer]] = weakref.WeakKeyDictionary()


def scratch(run: ExecutionContext, use: str, count: int) -> int:
    """Address of device memory for count floats, for use within one kernel call; shared by all layers of the
    net that name the same use. It only grows."""
    buffers = _scratch.get(run)
    if buffers is None:
        buffers = _scratch[run] = {}
    buffer = buffers.get(use)
    if buffer is None or buffer.nbytes < 4 * count:
        buffers.pop(use, None)
        buffer = buffers[use] = Buffer(4 * max(count, 1))
    return buffer.address


def keep(before: Buffer | None, count: int) -> Buffer:
    """before if it is of that size, else new memory: for what forward leaves for backward."""
    nbytes = 4 * max(count, 1)
    return before if before is not None and before.nbytes == nbytes else Buffer(nbytes)


def upload(values: np.ndarray) -> Buffer:
    """A small array of 32-bit numbers on the device."""
    buffer = Buffer(4 * max(values.size, 1))
    if values.size:
        copy = driver.device().driver.memcpy_htod
        driver.perform("copying to the GPU", copy, buffer.address, np.ascontiguousarray(values))
    return buffer


def sum_of(run: ExecutionContext, partial: int, count: int, target: int, factor: float) -> None:
    """target = factor · Σ of the blocks' shares that a kernel left at partial."""
    arithmetic().total.rows(1, count, partial, count, target, factor)


def three(values: Sequence[int], missing: int) -> tuple[int, int, int]:
    """Numbers for up to three spatial axes, as the kernels take them."""
    return (*[missing] * (3 - len(values)), *values)  # type: ignore[return-value]


def in_place(bottom: Sequence[Blob], top: Sequence[Blob]) -> bool:
    return bottom[0].data_mem is top[0].data_mem


def size_after(shape: Sequence[int], axis: int) -> int:
    return math.prod(shape[axis:])
