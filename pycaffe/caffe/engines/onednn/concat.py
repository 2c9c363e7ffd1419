"""Concat and Slice: parts of one blob along an axis, copied out of and into regions of its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from .base import Argument, Call, OneDNNKernel, Region, no_post, reorder_desc
from .layouts import MemoryDesc, activations, plain, submemory
from .library import OneDNNError
from .place import PLACE, Operand
from .primitives import DST, MULTIPLE_SRC, SRC, PrimitiveDesc


def regions(layout: MemoryDesc, axis: int, sizes: Sequence[int]) -> list[MemoryDesc] | None:
    """The parts of these sizes along axis, or None where one does not start at a block."""
    found, begin = [], 0
    for size in sizes:
        shape, offsets = list(layout.shape), [0] * len(layout.shape)
        shape[axis], offsets[axis] = size, begin
        try:
            found.append(submemory(layout, shape, offsets))
        except OneDNNError as error:
            if not error.unimplemented:
                raise
            return None
        begin += size
    return found


class _Joining(OneDNNKernel):
    """whole: the blob that holds all parts one after the other along axis."""

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return ()

    def lay_out(self, param: Any, older: str, whole: Blob, parts: Sequence[Blob], like: MemoryDesc) -> None:
        """like: the layout of one of them; a plain one leaves all plain."""
        axis = getattr(param, older) if param.HasField(older) else param.axis
        self.axis = axis % whole.num_axes
        sizes = [b.shape[self.axis] for b in parts]
        self.layout = plain(whole.shape) if like.plain else activations(whole.shape, like)
        found = regions(self.layout, self.axis, sizes)
        if found is None:
            self.layout = plain(whole.shape)
            found = regions(self.layout, self.axis, sizes)
        assert found is not None  # plain memory can be cut anywhere
        self.regions = found
        self.part_layouts = [plain(b.shape) if like.plain else activations(b.shape, like) for b in parts]

    def join(self, run: ExecutionContext, which: str, parts: Sequence[Blob], whole: Blob) -> Call:
        desc = PrimitiveDesc.of_many("concat", self.layout, self.part_layouts, self.axis, no_post())
        arguments: dict[int, Argument] = {
            MULTIPLE_SRC + i: Operand(b, which, layout, "read")
            for i, (b, layout) in enumerate(zip(parts, self.part_layouts, strict=True))
        }
        arguments[DST] = Operand(whole, which, self.layout, "write")
        return Call(run, desc, arguments)

    def cut(self, run: ExecutionContext, which: str, whole: Blob, parts: Sequence[Blob]) -> list[Call]:
        source = Operand(whole, which, self.layout, "read")
        return [
            Call(
                run,
                reorder_desc(region, layout),
                {SRC: Region(source, region), DST: Operand(b, which, layout, "write")},
            )
            for b, region, layout in zip(parts, self.regions, self.part_layouts, strict=True)
        ]


@kernel("Concat", engine="onednn")
class ConcatKernel(_Joining):
    repeatable = True

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._alone = len(bottom) == 1
        if self._alone:
            self.top_homes = [PLACE.home(bottom[0])]
        else:
            homes = [PLACE.home(b) for b in bottom]
            like = next((home for home in homes if not home.plain), homes[0])
            self.lay_out(self.layer.layer_param.concat_param, "concat_dim", top[0], bottom, like)
            self.top_homes = [self.layout]
            self._forward = self.join(run, "data", bottom, top[0])
        self.settle(top)

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if not self._alone:
            self._forward()

    def prepare_backward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._backward = [] if self._alone else self.cut(run, "diff", top[0], bottom)

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        for call, wanted in zip(self._backward, propagate_down, strict=False):
            if wanted:
                call()


@kernel("Slice", engine="onednn")
class SliceKernel(_Joining):
    repeatable = True

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._alone = len(top) == 1
        if self._alone:
            self.top_homes = [PLACE.home(bottom[0])]
        else:
            like = PLACE.home(bottom[0])
            self.lay_out(self.layer.layer_param.slice_param, "slice_dim", bottom[0], top, like)
            self.top_homes = self.part_layouts
            self._forward = self.cut(run, "data", bottom[0], top)
        self.settle(top)

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if not self._alone:
            for call in self._forward:
                call()

    def prepare_backward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._backward = None if self._alone else self.join(run, "diff", top, bottom[0])

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if propagate_down[0] and self._backward is not None:
            self._backward()
