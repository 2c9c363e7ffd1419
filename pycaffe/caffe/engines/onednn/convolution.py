"""Convolution: by Winograd's transforms where they pay, else by oneDNN's own primitive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from ...proto.caffe_pb2 import TEST
from .base import Argument, Call, Gradient
from .convolution_geometry import Convolutional, Geometry
from .layouts import MemoryDesc, blocked, plain
from .library import load
from .place import Operand
from .primitives import (
    BIAS,
    BINARY_ADD,
    DIFF_BIAS,
    DIFF_DST,
    DIFF_DST_MD,
    DIFF_SRC,
    DIFF_SRC_MD,
    DIFF_WEIGHTS,
    DIFF_WEIGHTS_MD,
    DST,
    RELU,
    SRC,
    SRC_MD,
    WEIGHTS,
    WEIGHTS_MD,
    Attributes,
    Memory,
    PrimitiveDesc,
    post_operand,
)
from .winograd import Tiling
from .winograd_calls import Backward, Forward
from .winograd_primitives import Weights, has_fast_products, weights_layout


class Parameters(Protocol):
    """Weights and bias that stand for a layer's own; version changes with them."""

    weights: Memory
    bias: Memory
    version: int


def find_tiling(geometry: Geometry, image: MemoryDesc, features: MemoryDesc, trains: bool) -> Tiling | None:
    """How to do it by Winograd's transforms, or None where they cannot or need not be used."""
    block = load().channel_block
    if (
        geometry.kernel != (3, 3)
        or geometry.stride != (1, 1)
        or geometry.dilation != (1, 1)
        or max(geometry.pad) > 2
        or image is not blocked(geometry.image)
        or features is not blocked(geometry.features)
        or geometry.weights[-3] % block
        or geometry.weights[-4] % block
    ):
        return None
    n, c, h, w = geometry.image
    tiling = Tiling(
        (n, c, h, w), geometry.features[1], geometry.group, (geometry.pad[0], geometry.pad[1]), block
    )
    fast = tiling.pays(trains) and has_fast_products(tiling.tiles(tiling.parts()[0]), *tiling.channels)
    return tiling if fast else None


@kernel("Convolution", engine="onednn")
class ConvolutionKernel(Convolutional):
    """tiling: of Winograd's transforms, where they pay; None for oneDNN's own convolution."""

    repeatable = True

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().prepare(run, bottom, top)
        tests = self.layer.phase == TEST
        self.tiling = find_tiling(self.geometry, self.image, self.features, not tests)
        if self.tiling is not None:
            # A net that tests transforms its weights once; in training they lie as the transforms want them.
            shape = self.geometry.weights
            self.weights = plain(shape) if tests else weights_layout(shape)
        self.top_homes = [self.features] * len(top)
        self.settle(top)
        self._transformed: Weights | None = None
        self._forward = []
        for source, target in zip(bottom, top, strict=True):
            call = self.joined(run, source, target)
            assert call is not None  # it is what was found
            self._forward.append(call)

    def joined(
        self,
        run: ExecutionContext,
        source: Blob,
        target: Blob,
        other: Blob | None = None,
        slope: float | None = None,
        folded: Parameters | None = None,
    ) -> Call | Forward | None:
        """Forward, and what follows it: other is added, then comes a ReLU with that slope. folded: parameters
        instead of this layer's. None where oneDNN has no fast code for all of it in one."""
        read, written = (
            Operand(source, "data", self.image, "read"),
            Operand(target, "data", self.features, "write"),
        )
        vector = plain(self.geometry.features[1:2])
        added = None if other is None else Operand(other, "data", self.features, "read")
        bias: Any = None
        if folded is not None:
            bias = folded.bias
        elif self.geometry.bias:
            bias = Operand(self.layer.blobs[1], "data", vector, "read")
        if self.tiling is not None:
            weights = self._transformed_weights(run, folded)
            return Forward(run, self.tiling, weights, read, written, bias, added, slope)
        weights = folded.weights if folded is not None else self._weights()
        arguments: dict[int, Argument] = {SRC: read, WEIGHTS: weights, DST: written}
        if bias is not None:
            arguments[BIAS] = bias
        post: list[tuple] = []
        if added is not None:
            post.append(("binary", BINARY_ADD, self.features))
            arguments[post_operand(0)] = added
        if slope is not None:
            post.append(("eltwise", RELU, slope, 0.0))
        found = self.found
        if post or folded is not None:
            found = self.geometry.forward(
                self.image, self.weights, self.features, Attributes(post), add_bias=folded is not None
            )
            if "ref" in found.implementation and "ref" not in self.found.implementation:
                return None
        return Call(run, found, arguments)

    def _weights(self) -> Operand:
        return Operand(self.layer.blobs[0], "data", self.weights, "read")

    def _transformed_weights(self, run: ExecutionContext, folded: Parameters | None = None) -> Weights:
        assert self.tiling is not None
        if folded is not None:
            return Weights(run, self.tiling, folded.weights, True, lambda: folded.version)
        if self._transformed is None:
            self._transformed = Weights(run, self.tiling, self._weights(), self.layer.phase == TEST)
        return self._transformed

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for call in self._forward:
            call()

    def prepare_backward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        wanted = self.layer.param_propagate_down
        self._gradients: list[Gradient] = []
        self._backward_weights: list[Call] = []
        self._backward_data: dict[int, Call] = {}
        self._backward_both: dict[tuple[int, bool], Backward] = {}
        self._data_desc: PrimitiveDesc | None = None
        if not any(wanted):
            return
        weight, *biases = self.layer.blobs
        if not self.weights.plain:
            weight.forget_host()  # it will be trained as it lies
        desc = None if self.tiling is not None else self.weights_primitive(bool(biases))
        produced = weights_layout(self.geometry.weights) if desc is None else desc.desc(DIFF_WEIGHTS_MD)
        gradients = [Gradient(run, weight, produced, wanted[0], self.weights)]
        for bias in biases:
            gradients.append(Gradient(run, bias, plain(bias.shape), wanted[1]))
        self._gradients = gradients
        if desc is None:
            return
        arguments: dict[int, Any] = {DIFF_WEIGHTS: gradients[0].memory}
        if biases:
            arguments[DIFF_BIAS] = gradients[1].memory
        for source, target in zip(bottom, top, strict=True):
            ends = {
                SRC: Operand(source, "data", desc.desc(SRC_MD), "read"),
                DIFF_DST: Operand(target, "diff", desc.desc(DIFF_DST_MD), "read"),
            }
            self._backward_weights.append(Call(run, desc, {**ends, **arguments}))

    def _data_call(self, run: ExecutionContext, source: Blob, target: Blob) -> Call:
        if self._data_desc is None:
            self._data_desc = self.data_primitive()
        desc = self._data_desc
        arguments = {
            DIFF_DST: Operand(target, "diff", desc.desc(DIFF_DST_MD), "read"),
            WEIGHTS: Operand(self.layer.blobs[0], "data", desc.desc(WEIGHTS_MD), "read"),
            DIFF_SRC: Operand(source, "diff", desc.desc(DIFF_SRC_MD), "write"),
        }
        return Call(run, desc, arguments)

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if self.tiling is not None:
            for i, wanted in enumerate(propagate_down):
                if wanted or self._gradients:
                    self._learn(lambda i=i, wanted=wanted: self._both(run, i, wanted, bottom[i], top[i])())
            return
        for call in self._backward_weights:
            self._learn(call)
        for i, wanted in enumerate(propagate_down):
            if wanted:
                call = self._backward_data.get(i)
                if call is None:
                    call = self._backward_data[i] = self._data_call(run, bottom[i], top[i])
                call()

    def _learn(self, call: Callable[[], None]) -> None:
        for gradient in self._gradients:
            gradient.before()
        call()
        for gradient in self._gradients:
            gradient.after()

    def _both(self, run: ExecutionContext, i: int, down: bool, source: Blob, target: Blob) -> Backward:
        """Gradients of parameters and of the image, which share a transform."""
        assert self.tiling is not None
        call = self._backward_both.get((i, down))
        if call is None:
            wanted = self.layer.param_propagate_down
            learned = [g if w else None for g, w in zip(self._gradients, wanted, strict=False)]
            call = self._backward_both[i, down] = Backward(
                run,
                self.tiling,
                self._transformed_weights(run),
                Operand(source, "data", self.image, "read"),
                Operand(target, "diff", self.features, "read"),
                (learned[0] if learned else None, learned[1] if len(learned) > 1 else None),
                Operand(source, "diff", self.image, "write") if down else None,
            )
        return call
