"""Eltwise: weighted sums of any number of bottoms, and products of two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from ...layer import Layer
from ...proto import caffe_pb2
from .base import Argument, Call, OneDNNKernel, common_layout, no_post, sum_desc
from .place import Operand
from .primitives import (
    BINARY_ADD,
    BINARY_MUL,
    DST,
    MULTIPLE_SRC,
    SRC,
    SRC_1,
    Attributes,
    MemoryDesc,
    PrimitiveDesc,
    post_operand,
)

_Op = caffe_pb2.EltwiseParameter


def binary_desc(algorithm: int, layout: MemoryDesc, attributes: Attributes | None = None) -> PrimitiveDesc:
    return PrimitiveDesc("binary", algorithm, layout, layout, layout, attributes or no_post())


# A primitive takes so many post-operations.
MOST_OPERANDS = 32


def binary_call(
    run: ExecutionContext,
    algorithm: int,
    layout: MemoryDesc,
    sources: Sequence[Argument],
    target: Argument,
    post: Sequence[tuple] = (),
) -> Call:
    """target = ((source ∘ source) ∘ source) …, then post, in one pass over at most MOST_OPERANDS sources."""
    more = [("binary", algorithm, layout)] * (len(sources) - 2)
    arguments: dict[int, Argument] = {SRC: sources[0], SRC_1: sources[1], DST: target}
    arguments |= {post_operand(k): source for k, source in enumerate(sources[2:])}
    attributes = Attributes([*more, *post]) if more or post else no_post()
    return Call(run, binary_desc(algorithm, layout, attributes), arguments)


@kernel("Eltwise", engine="onednn")
class EltwiseKernel(OneDNNKernel):
    repeatable = True

    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        param = layer.layer_param.eltwise_param
        if param.operation == _Op.PROD:
            fits = len(bottom) == 2 and param.stable_prod_grad
        else:
            fits = param.operation == _Op.SUM
        return super().supports(layer, bottom) and fits

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer.layer_param.eltwise_param
        self.product = param.operation == _Op.PROD
        self.coeff = list(param.coeff) or [1.0] * len(bottom)
        self.plain_sum = not self.product and all(c == 1 for c in self.coeff)
        self.layout, home = common_layout(bottom)
        self.top_homes = [home]
        self.settle(top)
        self._forward = self.forward_call(run, bottom, top[0])

    def forward_call(
        self,
        run: ExecutionContext,
        bottom: Sequence[Blob],
        target: Blob,
        post: Sequence[tuple] = (),
    ) -> Call:
        """post: post-operations, which only a sum without coefficients takes."""
        sources = [Operand(b, "data", self.layout, "read") for b in bottom]
        destination = Operand(target, "data", self.layout, "write")
        if (self.product or self.plain_sum) and len(bottom) <= MOST_OPERANDS:
            algorithm = BINARY_MUL if self.product else BINARY_ADD
            return binary_call(run, algorithm, self.layout, sources, destination, post)
        desc = sum_desc(self.layout, [self.layout] * len(bottom), self.coeff)
        return Call(run, desc, {**{MULTIPLE_SRC + i: s for i, s in enumerate(sources)}, DST: destination})

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._forward()

    def prepare_backward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        diff = Operand(top[0], "diff", self.layout, "read")
        self._backward: list[Call | None] = []
        for i, blob in enumerate(bottom):
            if not self.product and self.coeff[i] == 1 and blob.diff_mem is top[0].diff_mem:
                self._backward.append(None)  # in place: the diff is there
                continue
            target = Operand(blob, "diff", self.layout, "write")
            arguments: dict[int, Any]
            if self.product:
                other = Operand(bottom[1 - i], "data", self.layout, "read")
                desc, arguments = binary_desc(BINARY_MUL, self.layout), {SRC: diff, SRC_1: other, DST: target}
            else:
                desc = sum_desc(self.layout, [self.layout], [self.coeff[i]])
                arguments = {MULTIPLE_SRC: diff, DST: target}
            self._backward.append(Call(run, desc, arguments))

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        # Where bottom[0] is the top, its diff is written last: the others read it.
        for call, wanted in reversed(list(zip(self._backward, propagate_down, strict=True))):
            if wanted and call is not None:
                call()
