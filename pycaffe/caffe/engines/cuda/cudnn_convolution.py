"""Convolution and Deconvolution by cuDNN, over up to three spatial axes.

float32 is exact to its rounding unless CAFFE_TF32=1. Algorithms are those that cuDNN's heuristics put first
among the deterministic ones whose workspace fits; CAFFE_CUDNN_WORKSPACE_MB (default 512) bounds it.
"""

from __future__ import annotations

import ctypes
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
from .cublas import wants_tf32
from .cudnn import MOST_IMAGES, Descriptor, cudnn, filter_of, integers, tensor
from .place import accumulate, read, write

_FLOAT, _CROSS_CORRELATION, _DETERMINISTIC = 0, 1, 1
_DEFAULT_MATH, _FMA_MATH = 0, 3
_CANDIDATES = 8


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


class CudnnConvolution(CudaKernel):
    """As ConvolutionKernel: from images to features, or with transposed the other way."""

    transposed = False

    @classmethod
    def supports(cls, layer: Any, bottom: Sequence[Blob]) -> bool:
        filled = all(blob.count for blob in bottom) and bottom[0].shape[0] <= MOST_IMAGES
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
        self.image = tensor((*image[:2], *extra, *image[2:]))
        self.features = tensor((*features[:2], *extra, *features[2:]))
        self.filter = filter_of(weights)
        self.convolution = Descriptor("Convolution")
        pad, stride, dilation = (0,) * len(extra), extra, extra
        arrays = [
            integers((*before, *values))
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
            library.factor[1],
            a[0].handle,
            pointer(a[1]),
            b[0].handle,
            pointer(b[1]),
            self.convolution.handle,
            which,
            pointer(workspace),
            ctypes.c_size_t(size),
            library.factor[int(beta)],
            target[0].handle,
            pointer(target[1]),
        )

    def _to_features(self, run: ExecutionContext, weights: int, image: int, features: int) -> None:
        a, b, target = (self.image, image), (self.filter, weights), (self.features, features)
        self._run(run, "Forward", self._forward, a, b, target)

    def _to_image(self, run: ExecutionContext, weights: int, features: int, image: int) -> None:
        a, b, target = (self.filter, weights), (self.features, features), (self.image, image)
        self._run(run, "BackwardData", self._backward_data, a, b, target)

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return bottom

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
    found, size, results = ctypes.c_int(), ctypes.c_size_t(), (_Performance * _CANDIDATES)()
    library = cudnn()
    library.call(
        f"cudnnGetConvolution{name}Algorithm_v7",
        library.handle,
        *descriptors,
        _CANDIDATES,
        ctypes.byref(found),
        results,
    )
    limit = _workspace_limit()
    usable = []
    for candidate in (r for r in results[: found.value] if r.status == 0):
        # The heuristics' own figure is for the math type that they propose, perhaps not the descriptor's.
        which, out = candidate.algorithm, ctypes.byref(size)
        ask = f"cudnnGetConvolution{name}WorkspaceSize"
        if library.status(ask, library.handle, *descriptors, which, out) == 0 and size.value <= limit:
            usable.append((candidate.determinism, which, size.value))
    if not usable:
        raise EngineError(
            f"cuDNN has no {name} algorithm for this convolution within {limit >> 20} MB of workspace: raise "
            "CAFFE_CUDNN_WORKSPACE_MB, or write engine: CAFFE in its convolution_param"
        )
    _, which, memory = next((u for u in usable if u[0] == _DETERMINISTIC), usable[0])
    return which, memory


def _workspace_limit() -> int:
    """Bytes."""
    words = os.environ.get("CAFFE_CUDNN_WORKSPACE_MB", "512")
    if not words.isdecimal():
        raise EngineError(f"CAFFE_CUDNN_WORKSPACE_MB={words}: it must be a whole number of megabytes")
    return int(words) << 20


@kernel("Convolution", engine="cudnn")
class ConvolutionCudnn(CudnnConvolution):
    pass


@kernel("Deconvolution", engine="cudnn")
class DeconvolutionCudnn(CudnnConvolution):
    transposed = True
