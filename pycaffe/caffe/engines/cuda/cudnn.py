"""cuDNN through its classic C API: the library, its handle, and the descriptors that kernels give it.

Kernels of layers: cudnn_convolution.py, cudnn_layers.py. Where cuDNN computes something else than Caffe, or
leaves open what, the engine's own kernels stay (docs/decisions/0041-cudnn.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import math
import threading
from collections.abc import Sequence
from typing import Any

from ...errors import EngineError
from . import driver
from .cublas import cublas, open_library, wants_tf32

log = logging.getLogger("caffe.engine")

_FLOAT, _NCHW = 0, 0
_MINIMUM = 8000
# Some of cuDNN's kernels put an image in each block of a grid's second axis, which has no more.
MOST_IMAGES = 65535


class Cudnn:
    """A handle of cuDNN on the engine's stream; one thread at a time uses it, as cuDNN demands.

    factor: 0 and 1, as calls take them.
    """

    def __init__(self) -> None:
        device = driver.device()
        self._lock = threading.RLock()
        # cuDNN opens these two by name: they are found where they are open, and pip puts them elsewhere.
        cublas()
        with contextlib.suppress(EngineError):  # not all of cuDNN's algorithms need it
            open_library("nvrtc", (13, 12), "nvidia-cuda-nvrtc")
        self.dll = open_library("cudnn", (9, 8), "nvidia-cudnn-cu13")
        self.dll.cudnnGetErrorString.restype = ctypes.c_char_p
        self.dll.cudnnGetVersion.restype = ctypes.c_size_t
        version = self.dll.cudnnGetVersion()
        if version < _MINIMUM:
            raise EngineError(
                f"cuDNN is version {version}, and must be 8 or newer: pip install nvidia-cudnn-cu13"
            )
        self.handle = ctypes.c_void_p()
        self.call("cudnnCreate", ctypes.byref(self.handle))
        self.call("cudnnSetStream", self.handle, ctypes.c_void_p(device.stream.handle))
        self.version = version
        self.factor = tuple(ctypes.pointer(ctypes.c_float(value)) for value in (0, 1))
        log.info("GPU engine: cuDNN %d%s", version, ", TF32" if wants_tf32() else "")

    def status(self, name: str, *arguments: Any) -> int:
        """What the function answers: 0 when it has done its work."""
        with self._lock:
            return getattr(self.dll, name)(*arguments)

    def call(self, name: str, *arguments: Any) -> None:
        status = self.status(name, *arguments)
        if status:
            reason = self.dll.cudnnGetErrorString(status).decode()
            raise EngineError(
                f"GPU: {name} failed: {reason}. A layer whose parameters say engine: CAFFE does without cuDNN"
            )

    def apply(self, name: str, first: Sequence[Any], *tensors: tuple[Descriptor, int]) -> None:
        """The last tensor = the operation on the others, each (descriptor, address). first: what comes before
        them, beside the handle: descriptors of the operation and choices."""
        driver.device()
        sources = [word for d, address in tensors[:-1] for word in (d.handle, ctypes.c_void_p(address))]
        target, address = tensors[-1]
        zero, one = self.factor
        self.call(name, self.handle, *first, one, *sources, zero, target.handle, ctypes.c_void_p(address))


_cudnn: Cudnn | None = None


def cudnn() -> Cudnn:
    """The process's cuDNN, loaded at the first call. Raises EngineError with the cure."""
    global _cudnn
    if _cudnn is None:
        _cudnn = Cudnn()
    return _cudnn


def describe() -> str:
    return f"cuDNN {cudnn().version}"


class Descriptor:
    """A cuDNN object that is destroyed with its owner. kind: as in cudnnCreate<kind>Descriptor."""

    def __init__(self, kind: str):
        self.kind, self.handle = kind, ctypes.c_void_p()
        cudnn().call(f"cudnnCreate{kind}Descriptor", ctypes.byref(self.handle))

    def __del__(self) -> None:
        if self.handle and _cudnn is not None:
            getattr(_cudnn.dll, f"cudnnDestroy{self.kind}Descriptor")(self.handle)


def integers(values: Sequence[int]) -> Any:
    return (ctypes.c_int * len(values))(*values)


def tensor(shape: Sequence[int]) -> Descriptor:
    """Of float32 in C order; four axes or five."""
    descriptor = Descriptor("Tensor")
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    arrays = (integers(shape), integers(strides))
    cudnn().call("cudnnSetTensorNdDescriptor", descriptor.handle, _FLOAT, len(shape), *arrays)
    return descriptor


def filter_of(shape: Sequence[int]) -> Descriptor:
    """Weights (outputs, inputs / groups, *kernel)."""
    descriptor = Descriptor("Filter")
    handle, sizes = descriptor.handle, integers(shape)
    cudnn().call("cudnnSetFilterNdDescriptor", handle, _FLOAT, _NCHW, len(shape), sizes)
    return descriptor
