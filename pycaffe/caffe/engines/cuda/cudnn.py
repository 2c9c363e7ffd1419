"""Convolution and Deconvolution by cuDNN, through its classic C API. Up to three spatial axes.

float32 is exact to its rounding unless CAFFE_TF32=1. Algorithms are those that cuDNN's heuristics put first
among the deterministic ones whose workspace fits; CAFFE_CUDNN_WORKSPACE_MB (default 512) bounds it.
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
from collections.abc import Sequence
from typing import Any

from ...blob import Blob
from ...errors import EngineError
from ...execution import ExecutionContext
from ...kernels import kernel
from . import driver
from .base import CudaKernel, arithmetic, scratch
from .convolution import ConvolutionKernel
from .cublas import open_library, wants_tf32
from .place import accumulate, read, write

log = logging.getLogger("caffe.engine")

_FLOAT, _NCHW, _CROSS_CORRELATION, _DETERMINISTIC = 0, 0, 1, 1
_DEFAULT_MATH, _FMA_MATH = 0, 3
_MINIMUM = 8000


class _Performance(ctypes.Structure):
    """cudnnConvolutionFwdAlgoPerf_t and its two siblings."""

    _fields_ = [
        ("algorithm", ctypes.c_int),
        ("status", ctypes.c_int),
        ("time", ctypes.c_float),
        ("memory", ctypes.c_size_t),
        ("determinism", ctypes.c_int),
        ("math", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
    ]


_CANDIDATES = 8


class Cudnn:
    """A handle of cuDNN on the engine's stream."""

    def __init__(self) -> None:
        device = driver.device()
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
        self.workspace_limit = int(os.environ.get("CAFFE_CUDNN_WORKSPACE_MB", "512")) << 20
        self.one, self.factor = ctypes.c_float(1), (ctypes.c_float(0), ctypes.c_float(1))
        log.info("GPU engine: cuDNN %d%s", version, ", TF32" if wants_tf32() else "")

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.dll, name)(*arguments)
        if status:
            raise EngineError(f"GPU: {name} failed: {self.dll.cudnnGetErrorString(status).decode()}")


_cudnn: Cudnn | None = None


def cudnn() -> Cudnn:
    """The process's cuDNN, loaded at the first call. Raises EngineError with the cure."""
    global _cudnn
    if _cudnn is None:
        _cudnn = Cudnn()
    return _cudnn


def describe() -> str:
    return f"cuDNN {cudnn().version}"


class _Descriptor:
    """A cuDNN object that is destroyed with its owner. kind: "Tensor", "Filter" or "Convolution"."""

    def __init__(self, kind: str):
        self.kind, self.handle = kind, ctypes.c_void_p()
        cudnn().call(f"cudnnCreate{kind}Descriptor", ctypes.byref(self.handle))

    def __del__(self) -> None:
        if self.handle and _cudnn is not None:
            getattr(_cudnn.dll, f"cudnnDestroy{self.kind}Descriptor")(self.handle)


def _integers(values: Sequence[int]) -> Any:
    return (ctypes.c_int * len(values))(*values)


def _tensor(shape: Sequence[int]) -> _Descriptor:
    descriptor = _Descriptor("Tensor")
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    arrays = (_integers(shape), _integers(strides))
    cudnn().call("cudnnSetTensorNdDescriptor", descriptor.handle, _FLOAT, len(shape), *arrays)
    return descriptor


class CudnnConvolution(CudaKernel):
    """As ConvolutionKernel: from images to features, or with transposed the other way."""

    transposed = False

    @classmethod
    def supports(cls, layer: Any, bottom: Sequence[Blob]) -> bool:
        filled = all(blob.count for blob in bottom)
        return filled and 1 <= layer.spatial_axes <= 3 and ConvolutionKernel.supports(layer, bottom)

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer, window = self.layer, self.layer.window
        shapes = (layer.bottom_shape, layer.top_shape, layer.blobs[0].shape, window)
        if getattr(self, "_shapes", None) == shapes:
            return
        image, features = layer.bottom_shape, layer.top_shape
        if self.transposed:
            image, features = features, image
        # cuDNN knows two spatial axes and three.
        extra = (1,) * max(0, 2 - layer.spatial_axes)
        weights = (features[1], image[1] // layer.group, *extra, *window.kernel)
        self.image = _tensor((*image[:2], *extra, *image[2:]))
        self.features = _tensor((*features[:2], *extra, *features[2:]))
        self.filter = _Descriptor("Filter")
        cudnn().call(
            "cudnnSetFilterNdDescriptor",
            self.filter.handle,
            _FLOAT,
            _NCHW,
            len(weights),
            _integers(weights),
        )
        self.convolution = _Descriptor("Convolution")
        pad, stride, dilation = (0,) * len(extra), extra, extra
        arrays = [
            _integers((*before, *values))
            for before, values in ((pad, window.pad), (stride, window.stride), (dilation, window.dilation))
        ]
        handle = self.convolution.handle
        axes = len(extra) + layer.spatial_axes
        cudnn().call("cudnnSetConvolutionNdDescriptor", handle, axes, *arrays, _CROSS_CORRELATION, _FLOAT)
        cudnn().call("cudnnSetConvolutionGroupCount", handle, layer.group)
        cudnn().call("cudnnSetConvolutionMathType", handle, _DEFAULT_MATH if wants_tf32() else _FMA_MATH)
        image_d, filter_d, features_d = self.image.handle, self.filter.handle, self.features.handle
        self._forward = _algorithm("Forward", image_d, filter_d, handle, features_d)
        self._backward_data = _algorithm("BackwardData", filter_d, features_d, handle, image_d)
        self._backward_filter = _algorithm("BackwardFilter", image_d, features_d, handle, filter_d)
        self._shapes = shapes

    def _run(
        self,
        run: ExecutionContext,
        name: str,
        algorithm: tuple[int, int],
        a: Any,
        b: Any,
        target: Any,
        beta: float = 0,
    ) -> None:
        """target = beta · target + the operation on a and b, each (descriptor, address)."""
        library, (which, size) = cudnn(), algorithm
        workspace = scratch(run, "workspace", -(-size // 4)) if size else 0
        driver.device()
        pointer = ctypes.c_void_p
        library.call(
            f"cudnnConvolution{name}",
            library.handle,
            ctypes.byref(library.one),
            a[0].handle,
            pointer(a[1]),
            b[0].handle,
            pointer(b[1]),
            self.convolution.handle,
            which,
            pointer(workspace),
            ctypes.c_size_t(size),
            ctypes.byref(library.factor[int(beta)]),
            target[0].handle,
            pointer(target[1]),
        )

    def _to_features(self, run: ExecutionContext, weights: int, image: int, features: int) -> None:
        a, b, target = (self.image, image), (self.filter, weights), (self.features, features)
        self._run(run, "Forward", self._forward, a, b, target)

    def _to_image(self, run: ExecutionContext, weights: int, features: int, image: int) -> None:
        a, b, target = (self.filter, weights), (self.features, features), (self.image, image)
        self._run(run, "BackwardData", self._backward_data, a, b, target)

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer, weights = self.layer, read(self.layer.blobs[0].data_mem)
        move = self._to_image if self.transposed else self._to_features
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
        move = self._to_features if self.transposed else self._to_image
        num, channels, *sizes = layer.top_shape
        for target, down, source in zip(top, propagate_down, bottom, strict=True):
            dy = read(target.diff_mem)
            if layer.bias_term and layer.param_propagate_down[1]:
                total, before = accumulate(layer.blobs[1])
                inner = math.prod(sizes)
                arithmetic().block_total.rows(channels, num * inner, dy, total, num, inner, before)
            if layer.param_propagate_down[0]:
                x = read(source.data_mem)
                features, image = (x, dy) if self.transposed else (dy, x)
                diff, before = accumulate(layer.blobs[0])
                a, b = (self.image, image), (self.features, features)
                self._run(run, "BackwardFilter", self._backward_filter, a, b, (self.filter, diff), before)
            if down:
                move(run, weights, dy, write(source.diff_mem))


def _algorithm(name: str, *descriptors: Any) -> tuple[int, int]:
    """(algorithm, bytes of workspace) that cuDNN's heuristics recommend within the bounds."""
    found, results = ctypes.c_int(), (_Performance * _CANDIDATES)()
    library = cudnn()
    library.call(
        f"cudnnGetConvolution{name}Algorithm_v7",
        library.handle,
        *descriptors,
        _CANDIDATES,
        ctypes.byref(found),
        results,
    )
    usable = [r for r in results[: found.value] if r.status == 0 and r.memory <= library.workspace_limit]
    if not usable:
        raise EngineError(
            f"cuDNN has no {name} algorithm for this convolution within {library.workspace_limit >> 20} MB "
            "of workspace: raise "
            "CAFFE_CUDNN_WORKSPACE_MB, or write engine: CAFFE in its convolution_param"
        )
    best = next((r for r in usable if r.determinism == _DETERMINISTIC), usable[0])
    return best.algorithm, best.memory


@kernel("Convolution", engine="cudnn")
class ConvolutionCudnn(CudnnConvolution):
    pass


@kernel("Deconvolution", engine="cudnn")
class DeconvolutionCudnn(CudnnConvolution):
    transposed = True
