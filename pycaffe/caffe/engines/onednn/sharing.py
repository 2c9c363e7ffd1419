"""Layers whose tops share the bottom's memory: Split, Flatten, Reshape; and Dropout, which mostly does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from .base import Call, OneDNNKernel, common_layout, sum_desc
from .eltwise import MOST_OPERANDS, binary_call, binary_desc
from .place import PLACE, Operand
from .primitives import BINARY_ADD, BINARY_MUL, DST, MULTIPLE_SRC, SRC, SRC_1


@kernel("Split", engine="onednn")
class SplitKernel(OneDNNKernel):
    """Backward adds up the diffs that somebody has computed; a top whose readers send none back is left
    out."""

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.layout, home = common_layout(bottom)
        self.top_homes = [home] * len(top)
        self.settle(top)
        self._sums: dict[tuple[int, ...], Call] = {}

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return ()

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        pass

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if not propagate_down[0]:
            return
        given = tuple(i for i, blob in enumerate(top) if not blob.diff_mem.is_zero)
        if not given:
            bottom[0].diff_mem.clear()
            return
        call = self._sums.get(given)
        if call is None:
            call = self._sums[given] = self._sum(run, [top[i] for i in given], bottom[0])
        call()

    def _sum(self, run: ExecutionContext, parts: Sequence[Blob], target: Blob) -> Call:
        sources = [Operand(b, "diff", self.layout, "read") for b in parts]
        destination = Operand(target, "diff", self.layout, "write")
        if 2 <= len(parts) <= MOST_OPERANDS:
            return binary_call(run, BINARY_ADD, self.layout, sources, destination)
        desc = sum_desc(self.layout, [self.layout] * len(parts))
        return Call(run, desc, {**{MULTIPLE_SRC + i: s for i, s in enumerate(sources)}, DST: destination})


class _Alias(OneDNNKernel):
    """The top is the bottom under another shape: nothing to do, and its memory stays where it is."""

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.top_homes = [PLACE.alias_home(bottom[0]) or PLACE.home(bottom[0])]
        self.settle(top)

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return ()

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        pass

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        pass


@kernel("Flatten", engine="onednn")
class FlattenKernel(_Alias):
    pass


@kernel("Reshape", engine="onednn")
class ReshapeKernel(_Alias):
    pass


@kernel("Dropout", engine="onednn")
class DropoutKernel(OneDNNKernel):
    """The same mask as the reference's. It is laid out like the bottom, which stays where it is."""

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer: Any = self.layer
        self.layout, home = common_layout(bottom)
        self.top_homes = [home]
        self.settle(top)
        self._mask = Blob(bottom[0].shape) if layer.drops else None
        self._in_place = bottom[0].data_mem is top[0].data_mem
        self._forward = self._call(run, "data", bottom[0], top[0])

    def _call(self, run: ExecutionContext, which: str, source: Blob, target: Blob) -> Call:
        arguments: dict[int, Any] = {DST: Operand(target, which, self.layout, "write")}
        if self._mask is None:
            arguments[MULTIPLE_SRC] = Operand(source, which, self.layout, "read")
            return Call(run, sum_desc(self.layout, [self.layout]), arguments)
        arguments[SRC] = Operand(source, which, self.layout, "read")
        arguments[SRC_1] = Operand(self._mask, "data", self.layout, "read")
        return Call(run, binary_desc(BINARY_MUL, self.layout), arguments)

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return ()

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer: Any = self.layer
        if self._mask is not None:
            mask = self._mask.overwrite_cpu_data().reshape(-1)
            np.greater(run.bits32(layer.name, mask.size), layer.threshold, out=mask, casting="unsafe")
            mask *= layer.scale
        elif self._in_place:
            return
        self._forward()

    def prepare_backward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._backward = self._call(run, "diff", top[0], bottom[0])

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if propagate_down[0] and not (self._mask is None and self._in_place):
            self._backward()
