"""Pooling, LRN, Softmax and activations by cuDNN, where that is what Caffe computes, to the rounding.

What is left to the engine's own kernels, and why: docs/decisions/0041-cudnn.md.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from ...proto import caffe_pb2
from .base import CudaKernel, keep, scratch
from .cudnn import MOST_IMAGES, Descriptor, cudnn, integers, tensor
from .neurons import Neuron
from .place import read, write
from .pooling import AVE, MAX, PoolingKernel

_PROPAGATE_NAN = 1
_MAX, _AVERAGE_WITH_PADDING = 0, 1
_ACROSS_CHANNELS = 0
_ACCURATE, _CHANNEL = 1, 1
_SIGMOID, _RELU, _TANH = 0, 1, 2
# What cuDNN's header allows of LRN's parameters.
_LRN_MOST, _LRN_LEAST_K, _LRN_LEAST_BETA = 16, 1e-5, 0.01


def _filled(bottom: Sequence[Blob]) -> bool:
    return all(blob.count for blob in bottom)


def _few(bottom: Sequence[Blob]) -> bool:
    return bottom[0].shape[0] <= MOST_IMAGES


def _in_place(layer: Any) -> bool:
    param = layer.layer_param
    return list(param.bottom[:1]) == list(param.top[:1])


@kernel("Pooling", engine="cudnn")
class PoolingCudnn(PoolingKernel):
    """Means, padding counted; and maxima in TEST, whose backward pass is the engine's own.

    cuDNN's windows lie within the image and its padding; Caffe's last one may reach further.
    """

    @classmethod
    def supports(cls, layer: Any, bottom: Sequence[Blob]) -> bool:
        if not _filled(bottom) or not 1 <= len(layer.kernel) <= 3:
            return False
        known = layer.method == AVE or (
            layer.method == MAX and layer.phase == caffe_pb2.TEST and len(layer.layer_param.top) == 1
        )
        axes = zip(
            bottom[0].shape[2:], layer.kernel, layer.stride, layer.pad, layer.windows.places, strict=True
        )
        inside = all(places == (size + 2 * pad - k) // stride + 1 for size, k, stride, pad, places in axes)
        return known and inside and _few(bottom) and super().supports(layer, bottom)

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.measure(bottom, top)
        layer = self.layer
        # cuDNN knows two spatial axes and three.
        extra = (1,) * max(0, 2 - len(layer.kernel))
        self._x, self._y = (tensor((*b.shape[:2], *extra, *b.shape[2:])) for b in (bottom[0], top[0]))
        self._windows = Descriptor("Pooling")
        mode = _AVERAGE_WITH_PADDING if self.method == AVE else _MAX
        arrays = [
            integers((*before, *values))
            for before, values in (
                (extra, layer.kernel),
                ((0,) * len(extra), layer.pad),
                (extra, layer.stride),
            )
        ]
        handle, axes = self._windows.handle, len(extra) + len(layer.kernel)
        cudnn().call("cudnnSetPoolingNdDescriptor", handle, mode, _PROPAGATE_NAN, axes, *arrays)

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return () if self.method == AVE else bottom

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = read(bottom[0].data_mem)
        y = write(top[0].data_mem)
        cudnn().apply("cudnnPoolingForward", [self._windows.handle], (self._x, x), (self._y, y))

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if not propagate_down[0]:
            return
        if self.method == MAX:
            # A later layer in place may have changed the top, from which cuDNN would find the maxima.
            self._index = keep(self._index, self.count)
            x, y = read(bottom[0].data_mem), scratch(run, "maxima", self.count)
            self.code.max_forward.elements(self.count, x, y, self._index.address, *self.geometry)
            super().backward(run, top, propagate_down, bottom)
            return
        dy = read(top[0].diff_mem)
        dx = write(bottom[0].diff_mem)
        # Of means it asks for x and y as well, and uses neither.
        y_and_dy, x_and_dx = (self._y, dy), (self._x, dx)
        windows = [self._windows.handle]
        cudnn().apply("cudnnPoolingBackward", windows, y_and_dy, y_and_dy, x_and_dx, x_and_dx)


@kernel("LRN", engine="cudnn")
class LRNCudnn(CudaKernel):
    """Across channels."""

    @classmethod
    def supports(cls, layer: Any, bottom: Sequence[Blob]) -> bool:
        allowed = layer.size <= _LRN_MOST and layer.k >= _LRN_LEAST_K and layer.beta >= _LRN_LEAST_BETA
        known = not layer.within and not _in_place(layer)
        return known and allowed and _filled(bottom) and _few(bottom) and super().supports(layer, bottom)

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer, shape = self.layer, bottom[0].shape
        self._tensor = tensor((*shape[:2], math.prod(shape[2:]), 1))
        self._window = Descriptor("LRN")
        numbers = [ctypes.c_double(n) for n in (layer.layer_param.lrn_param.alpha, layer.beta, layer.k)]
        cudnn().call("cudnnSetLRNDescriptor", self._window.handle, ctypes.c_uint(layer.size), *numbers)
        self._version = -1

    def _forward(self, x: int, y: int) -> None:
        first = [self._window.handle, _ACROSS_CHANNELS]
        cudnn().apply("cudnnLRNCrossChannelForward", first, (self._tensor, x), (self._tensor, y))

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = read(bottom[0].data_mem)
        self._forward(x, write(top[0].data_mem))
        self._version = top[0].data_mem.version

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if not propagate_down[0]:
            return
        x, dy = read(bottom[0].data_mem), read(top[0].diff_mem)
        if top[0].data_mem.version == self._version:
            y = read(top[0].data_mem)
        else:  # a layer in place, or a script, has changed it since
            y = scratch(run, "normalised", top[0].count)
            self._forward(x, y)
        dx, first = write(bottom[0].diff_mem), [self._window.handle, _ACROSS_CHANNELS]
        operands = [(self._tensor, address) for address in (y, dy, x, dx)]
        cudnn().apply("cudnnLRNCrossChannelBackward", first, *operands)


@kernel("Softmax", engine="cudnn")
class SoftmaxCudnn(CudaKernel):
    @classmethod
    def supports(cls, layer: Any, bottom: Sequence[Blob]) -> bool:
        few = layer.blocks[0] <= MOST_IMAGES
        return few and _filled(bottom) and super().supports(layer, bottom)

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._tensor = tensor((*self.layer.blocks, 1))

    def _apply(self, name: str, *addresses: int) -> None:
        cudnn().apply(name, [_ACCURATE, _CHANNEL], *((self._tensor, address) for address in addresses))

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = read(bottom[0].data_mem)
        self._apply("cudnnSoftmaxForward", x, write(top[0].data_mem))

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if propagate_down[0]:
            y, dy = read(top[0].data_mem), read(top[0].diff_mem)
            self._apply("cudnnSoftmaxBackward", y, dy, write(bottom[0].diff_mem))


class ActivationCudnn(Neuron):
    """mode: cuDNN's number of the function. source: of our kernel, for the case that only it computes."""

    mode: ClassVar[int]
    # Is the gradient the same from the bottom's values in the top's place?
    from_bottom: ClassVar[bool] = False
    _version = -1

    @classmethod
    def supports(cls, layer: Any, bottom: Sequence[Blob]) -> bool:
        known = cls.from_bottom or not _in_place(layer)
        return known and _filled(bottom) and super().supports(layer, bottom)

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(run, bottom, top)
        self._tensor = tensor((1, 1, 1, bottom[0].count))
        self._function = Descriptor("Activation")
        numbers = (_PROPAGATE_NAN, ctypes.c_double(0))
        cudnn().call("cudnnSetActivationDescriptor", self._function.handle, self.mode, *numbers)

    def _apply(self, name: str, *addresses: int) -> None:
        cudnn().apply(name, [self._function.handle], *((self._tensor, address) for address in addresses))

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = read(bottom[0].data_mem)
        self._apply("cudnnActivationForward", x, write(top[0].data_mem))
        self._version = top[0].data_mem.version

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if not self.from_bottom and top[0].data_mem.version != self._version:
            # Where somebody has changed it, Caffe's gradient is of the top as it is now; cuDNN's perhaps not.
            super().backward(run, top, propagate_down, bottom)
        elif propagate_down[0]:
            x, dy = read(bottom[0].data_mem), read(top[0].diff_mem)
            y = x if self.from_bottom else read(top[0].data_mem)
            self._apply("cudnnActivationBackward", y, dy, x, write(bottom[0].diff_mem))


@kernel("ReLU", engine="cudnn")
class ReLUCudnn(ActivationCudnn):
    """The top's signs are the bottom's, so that layers in place on the top do not matter."""

    mode = _RELU
    from_bottom = True

    @classmethod
    def supports(cls, layer: Any, bottom: Sequence[Blob]) -> bool:
        return layer.negative_slope == 0 and super().supports(layer, bottom)


@kernel("Sigmoid", engine="cudnn")
class SigmoidCudnn(ActivationCudnn):
    source = "sigmoid"
    mode = _SIGMOID


@kernel("TanH", engine="cudnn")
class TanHCudnn(ActivationCudnn):
    source = "tanh"
    mode = _TANH
