"""Eltwise: weighted sums, products and maxima."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from ...layer import Layer
from ...proto import caffe_pb2
from .base import Argument, Call, OneDNNKernel, common_layout, no_post, sum_desc
from .layouts import MemoryDesc
from .place import Operand
from .primitives import (
    BINARY_ADD,
    BINARY_GE,
    BINARY_MAX,
    BINARY_MUL,
    BINARY_SUB,
    DST,
    MULTIPLE_SRC,
    SRC,
    SRC_1,
    Attributes,
    Buffer,
    Memory,
    PrimitiveDesc,
    post_operand,
)

_Op = caffe_pb2.EltwiseParameter
_ALGORITHMS = {_Op.SUM: BINARY_ADD, _Op.PROD: BINARY_MUL, _Op.MAX: BINARY_MAX}


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
        fits = param.operation == _Op.SUM or len(bottom) <= MOST_OPERANDS
        if param.operation == _Op.PROD:
            fits = fits and param.stable_prod_grad
        return super().supports(layer, bottom) and fits

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer.layer_param.eltwise_param
        self._algorithm = _ALGORITHMS[param.operation]
        self.coeff = list(param.coeff) or [1.0] * len(bottom)
        self.plain_sum = self._algorithm == BINARY_ADD and all(c == 1 for c in self.coeff)
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
        if (self.plain_sum or self._algorithm != BINARY_ADD) and len(bottom) <= MOST_OPERANDS:
            return binary_call(run, self._algorithm, self.layout, sources, destination, post)
        desc = sum_desc(self.layout, [self.layout] * len(bottom), self.coeff)
        return Call(run, desc, {**{MULTIPLE_SRC + i: s for i, s in enumerate(sources)}, DST: destination})

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return () if self._algorithm == BINARY_ADD else bottom

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._forward()

    def prepare_backward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        diff = Operand(top[0], "diff", self.layout, "read")
        targets = [Operand(b, "diff", self.layout, "write") for b in bottom]
        # (bottom, or -1 for any; call). Where bottom[0] is the top, its diff is written last: others read it.
        self._backward: list[tuple[int, Call]] = []
        if self._algorithm == BINARY_MAX:
            self._share(run, bottom, diff, targets)
            return
        for i, blob in reversed(list(enumerate(bottom))):
            if self._algorithm == BINARY_MUL:
                others = [Operand(b, "data", self.layout, "read") for j, b in enumerate(bottom) if j != i]
                call = binary_call(run, BINARY_MUL, self.layout, [diff, *others], targets[i])
            elif self.coeff[i] == 1 and blob.diff_mem is top[0].diff_mem:
                continue  # in place: the diff is there
            else:
                desc = sum_desc(self.layout, [self.layout], [self.coeff[i]])
                call = Call(run, desc, {MULTIPLE_SRC: diff, DST: targets[i]})
            self._backward.append((i, call))

    def _share(
        self, run: ExecutionContext, bottom: Sequence[Blob], diff: Operand, targets: Sequence[Operand]
    ) -> None:
        """The gradient of a maximum: in the order in which the layer settles ties (1, 0, 2, 3, …) each bottom
        takes it where it is the greatest, and leaves the rest to those that follow."""
        layout = self.layout
        values = [Operand(b, "data", layout, "read") for b in bottom]
        order = [1, 0, *range(2, len(bottom))]

        def own() -> Memory:
            return Memory(layout, Buffer(layout.nbytes))

        wanted = self.propagate_down or [True] * len(bottom)
        parts: list[Argument] = [target if w else own() for target, w in zip(targets, wanted, strict=True)]
        greatest: Argument = values[0]
        if len(bottom) > 2:
            greatest = own()
            self._backward.append((-1, binary_call(run, BINARY_MAX, layout, values, greatest)))
        takes = binary_desc(BINARY_GE, layout, Attributes([("binary", BINARY_MUL, layout)]))
        rest: Argument = diff
        for i, following in itertools.pairwise(order):
            arguments = {SRC: values[i], SRC_1: greatest, post_operand(0): rest, DST: parts[i]}
            self._backward.append((-1, Call(run, takes, arguments)))
            left: Argument = parts[following] if following == order[-1] else own()
            taken = parts[i] if isinstance(parts[i], Memory) else Operand(bottom[i], "diff", layout, "read")
            arguments = {SRC: rest, SRC_1: taken, DST: left}
            self._backward.append((-1, Call(run, binary_desc(BINARY_SUB, layout), arguments)))
            rest = left

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if not any(propagate_down):
            return
        for i, call in self._backward:
            if i < 0 or propagate_down[i]:
                call()
