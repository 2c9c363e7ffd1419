"""Layers that compute each element from its counterpart, in whatever layout the bottom lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from ...layer import Layer
from .base import Call, OneDNNKernel, no_post
from .layouts import MemoryDesc, plain
from .place import PLACE, Operand
from .primitives import (
    ABS,
    CLIP,
    DIFF_DST,
    DIFF_SRC,
    DST,
    ELU,
    ELU_DST,
    FORWARD_TRAINING,
    LINEAR,
    LOGISTIC,
    LOGISTIC_DST,
    RELU,
    RELU_DST,
    SOFT_RELU,
    SRC,
    SWISH,
    TANH,
    TANH_DST,
    PrimitiveDesc,
)


def element_layout(blob: Blob) -> MemoryDesc:
    """The blob's home; plain memory as one axis."""
    home = PLACE.home(blob)
    return plain((blob.count,)) if home.plain else home


class NeuronKernel(OneDNNKernel):
    """y = f(x; alpha, beta).

    algorithm: f. from_top: the algorithm whose gradient is computed from y, where there is one: it is used in
    place."""

    repeatable = True
    algorithm: ClassVar[int]
    from_top: ClassVar[int | None] = None

    def numbers(self) -> tuple[float, float]:
        """alpha and beta."""
        return 0.0, 0.0

    def backward_numbers(self) -> tuple[float, float]:
        return self.numbers()

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.layout = layout = element_layout(bottom[0])
        self.top_homes = [PLACE.home(bottom[0])]
        self.settle(top)
        in_place = bottom[0].data_mem is top[0].data_mem
        self._from_top = in_place and self.from_top is not None
        self._used: int = self.from_top if self._from_top else self.algorithm  # type: ignore[assignment]
        self._found = PrimitiveDesc(
            "eltwise_forward", FORWARD_TRAINING, self._used, layout, layout, *self.numbers(), no_post()
        )
        source = Operand(bottom[0], "data", layout, "read", on_host=layout.plain)
        target = Operand(top[0], "data", layout, "write", on_host=layout.plain)
        self._forward = Call(run, self._found, {SRC: source, DST: target})

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return top if self._from_top else bottom

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._forward()

    def prepare_backward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layout = self.layout
        numbers, hint = self.backward_numbers(), self._found
        if numbers != self.numbers():
            hint = PrimitiveDesc(
                "eltwise_forward", FORWARD_TRAINING, self._used, layout, layout, *numbers, no_post()
            )
        desc = PrimitiveDesc(
            "eltwise_backward", self._used, layout, layout, layout, *numbers, hint, no_post()
        )
        data = Operand(top[0] if self._from_top else bottom[0], "data", layout, "read")
        arguments = {
            DST if self._from_top else SRC: data,
            DIFF_DST: Operand(top[0], "diff", layout, "read"),
            DIFF_SRC: Operand(bottom[0], "diff", layout, "write"),
        }
        self._backward = Call(run, desc, arguments)

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if propagate_down[0]:
            self._backward()


@kernel("ReLU", engine="onednn")
class ReLUKernel(NeuronKernel):
    algorithm, from_top = RELU, RELU_DST

    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        slope: float = layer.negative_slope  # type: ignore[attr-defined]
        return super().supports(layer, bottom) and slope >= 0

    def numbers(self) -> tuple[float, float]:
        return self.layer.negative_slope, 0.0  # type: ignore[attr-defined]


@kernel("ELU", engine="onednn")
class ELUKernel(NeuronKernel):
    algorithm, from_top = ELU, ELU_DST

    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        return super().supports(layer, bottom) and layer.alpha >= 0  # type: ignore[attr-defined]

    def numbers(self) -> tuple[float, float]:
        return self.layer.alpha, 0.0  # type: ignore[attr-defined]


class _FromTop(NeuronKernel):
    """Always computes the gradient from y, as the layer's definition does."""

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().prepare(run, bottom, top)
        if not self._from_top:
            self._from_top, self._used = True, self.from_top  # type: ignore[assignment]
            self._found = PrimitiveDesc(
                "eltwise_forward",
                FORWARD_TRAINING,
                self._used,
                self.layout,
                self.layout,
                *self.numbers(),
                no_post(),
            )


@kernel("Sigmoid", engine="onednn")
class SigmoidKernel(_FromTop):
    algorithm, from_top = LOGISTIC, LOGISTIC_DST


@kernel("TanH", engine="onednn")
class TanHKernel(_FromTop):
    algorithm, from_top = TANH, TANH_DST


@kernel("AbsVal", engine="onednn")
class AbsValKernel(NeuronKernel):
    algorithm = ABS


class _NeedsBottom(NeuronKernel):
    """The gradient needs x, so that a layer in place is left to the reference."""

    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        return super().supports(layer, bottom) and list(layer.layer_param.top) != list(
            layer.layer_param.bottom
        )


@kernel("BNLL", engine="onednn")
class BNLLKernel(_NeedsBottom):
    algorithm = SOFT_RELU

    def numbers(self) -> tuple[float, float]:
        return 1.0, 0.0


@kernel("Swish", engine="onednn")
class SwishKernel(_NeedsBottom):
    algorithm = SWISH

    def numbers(self) -> tuple[float, float]:
        return self.layer.beta, 0.0  # type: ignore[attr-defined]


@kernel("Power", engine="onednn")
class LinearKernel(NeuronKernel):
    """Power with power 1: shift + scale · x."""

    algorithm = LINEAR

    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        power: Any = layer
        return (
            super().supports(layer, bottom)
            and power.power == 1
            and not getattr(power, "in_place_chain", False)
        )

    def numbers(self) -> tuple[float, float]:
        return self.layer.scale, self.layer.shift  # type: ignore[attr-defined]


@kernel("Clip", engine="onednn")
class ClipKernel(NeuronKernel):
    algorithm = CLIP

    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        clip: Any = layer
        return super().supports(layer, bottom) and -np.inf < clip.min <= clip.max < np.inf

    def numbers(self) -> tuple[float, float]:
        return self.layer.min, self.layer.max  # type: ignore[attr-defined]

    def backward_numbers(self) -> tuple[float, float]:
        """oneDNN lets the gradient pass above the lower bound, the layer from there on."""
        lower, upper = self.numbers()
        return float(np.nextafter(np.float32(lower), np.float32(-np.inf))), upper
