"""InnerProduct. A bottom in a layout of oneDNN's is read as it lies, with weights that are laid out alike; a
plain one is a matrix whose weights oneDNN lays out as it likes. Either way all three passes share one layout
of the weights."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from ...layer import Layer
from .base import Argument, Call, Gradient, OneDNNKernel, first_fast, no_post
from .layouts import AnyDesc, MemoryDesc, blocked, plain, strided
from .place import PLACE, Operand
from .primitives import (
    BIAS,
    DIFF_BIAS,
    DIFF_DST,
    DIFF_SRC,
    DIFF_WEIGHTS,
    DIFF_WEIGHTS_MD,
    DST,
    FORWARD_TRAINING,
    RELU,
    SRC,
    WEIGHTS,
    WEIGHTS_MD,
    Attributes,
    PrimitiveDesc,
)

# So few items are put in a row each, which costs nothing beside the weights and lets oneDNN lay those out.
FEW_ITEMS = 2


def forward_desc(
    source: MemoryDesc, weights: Any, outputs: int, bias: bool, attributes: Attributes | None = None
) -> PrimitiveDesc:
    return PrimitiveDesc(
        "inner_product_forward",
        FORWARD_TRAINING,
        source,
        weights,
        plain((outputs,)) if bias else None,
        plain((source.shape[0], outputs)),
        attributes or no_post(),
    )


@functools.lru_cache(maxsize=4096)
def find_forward(source: MemoryDesc, outputs: int, bias: bool) -> PrimitiveDesc | None:
    shape = (outputs, *source.shape[1:])
    weights = blocked(shape) if source.key[4] else AnyDesc(shape)
    return first_fast([lambda: forward_desc(source, weights, outputs, bias)])


@kernel("InnerProduct", engine="onednn")
class InnerProductKernel(OneDNNKernel):
    repeatable = True

    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        return super().supports(layer, bottom)

    def _source(self, bottom: Blob) -> tuple[MemoryDesc, bool]:
        """The layout in which the bottom is read, and whether the host's own array is."""
        layer: Any = self.layer
        items, inputs = layer.bottom_shape
        home = PLACE.alias_home(bottom) or PLACE.home(bottom)
        if (
            not home.plain
            and home.shape[0] == items
            and items > FEW_ITEMS
            and not layer.transpose
            and find_forward(home, layer.num_output, layer.bias_term) is not None
        ):
            return home, False
        return plain((items, inputs)), True

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer: Any = self.layer
        self.source, self._on_host = self._source(bottom[0])
        self.target = plain(layer.top_shape)
        if layer.transpose:
            inputs, outputs = layer.inputs, layer.num_output
            weights = strided((outputs, inputs), (1, outputs))
            self.found = forward_desc(self.source, weights, outputs, layer.bias_term)
        else:
            found = find_forward(self.source, layer.num_output, layer.bias_term)
            self.found = found or forward_desc(
                self.source, plain((layer.num_output, layer.inputs)), layer.num_output, layer.bias_term
            )
        self.weights = self.found.desc(WEIGHTS_MD)
        self.top_homes = [plain(top[0].shape)]
        self.settle(top)
        self._forward = self._forward_call(run, self.found, bottom[0], top[0])

    def joined(self, run: ExecutionContext, source: Blob, target: Blob, slope: float) -> Call | None:
        """Forward with the ReLU of that slope that follows it, or None where oneDNN has no fast code for both
        in one."""
        layer: Any = self.layer
        post = Attributes([("eltwise", RELU, slope, 0.0)])
        desc = forward_desc(self.source, self.weights, layer.num_output, layer.bias_term, post)
        if "ref" in desc.implementation and "ref" not in self.found.implementation:
            return None
        return self._forward_call(run, desc, source, target)

    def _forward_call(self, run: ExecutionContext, desc: PrimitiveDesc, source: Blob, target: Blob) -> Call:
        arguments: dict[int, Argument] = {
            SRC: Operand(source, "data", self.source, "read", self._on_host),
            WEIGHTS: self._weights("read"),
            DST: Operand(target, "data", self.target, "write", on_host=True),
        }
        if len(self.layer.blobs) > 1:
            arguments[BIAS] = Operand(self.layer.blobs[1], "data", plain(self.layer.blobs[1].shape), "read")
        return Call(run, desc, arguments)

    def _weights(self, mode: str) -> Operand:
        transposed: bool = self.layer.transpose  # type: ignore[attr-defined]
        return Operand(self.layer.blobs[0], "data", self.weights, mode, on_host=transposed)

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return bottom

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._forward()

    def prepare_backward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer: Any = self.layer
        weight, *biases = layer.blobs
        weight.forget_host()  # it will be trained as it lies
        top_diff = Operand(top[0], "diff", self.target, "read", on_host=True)
        desc = PrimitiveDesc(
            "inner_product_backward_weights",
            self.source,
            self.weights,
            plain(biases[0].shape) if biases else None,
            self.target,
            self.found,
            no_post(),
        )
        wanted = layer.param_propagate_down
        produced = desc.desc(DIFF_WEIGHTS_MD)
        self._gradients = [Gradient(run, weight, produced, wanted[0], on_host=layer.transpose)]
        arguments: dict[int, Any] = {
            SRC: Operand(bottom[0], "data", self.source, "read", self._on_host),
            DIFF_DST: top_diff,
            DIFF_WEIGHTS: self._gradients[0].memory,
        }
        if biases:
            self._gradients.append(Gradient(run, biases[0], plain(biases[0].shape), wanted[1]))
            arguments[DIFF_BIAS] = self._gradients[1].memory
        self._backward_weights = Call(run, desc, arguments)
        desc = PrimitiveDesc(
            "inner_product_backward_data", self.source, self.weights, self.target, self.found, no_post()
        )
        arguments = {
            DIFF_DST: top_diff,
            WEIGHTS: self._weights("read"),
            DIFF_SRC: Operand(bottom[0], "diff", self.source, "write", self._on_host),
        }
        self._backward_data = Call(run, desc, arguments)

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if any(self.layer.param_propagate_down):
            for gradient in self._gradients:
                gradient.before()
            self._backward_weights()
            for gradient in self._gradients:
                gradient.after()
        if propagate_down[0]:
            self._backward_data()
