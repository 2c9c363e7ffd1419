"""What the engine's kernels share: calls of primitives on blobs, scratch memory, parameters' gradients."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import Kernel
from ...layer import Layer
from .layouts import MemoryDesc, plain
from .library import OneDNNError
from .place import PLACE, RECORDER, Operand
from .primitives import (
    DST,
    MULTIPLE_SRC,
    SCRATCHPAD,
    SCRATCHPAD_MD,
    SRC,
    Attributes,
    Buffer,
    Memory,
    Primitive,
    PrimitiveDesc,
)


class Scratchpad:
    """Scratch memory of all primitives of one net, which run one after the other: as large as the largest
    needs. It lives as long as one of its memories does."""

    def __init__(self) -> None:
        self._buffer = Buffer(64)
        self._users: weakref.WeakKeyDictionary[Memory, int] = weakref.WeakKeyDictionary()

    def memory(self, desc: MemoryDesc, offset: int = 0) -> Memory:
        """offset: in bytes."""
        if offset + desc.nbytes > self._buffer.bytes.size:
            self._buffer = Buffer(offset + desc.nbytes)
            for user, place in self._users.items():
                user.point(self._buffer.address + place)
        memory = Memory(desc)
        memory.keep = self
        memory.point(self._buffer.address + offset)
        self._users[memory] = offset
        return memory


_Slots = weakref.WeakValueDictionary[str, Scratchpad]
_scratchpads: weakref.WeakKeyDictionary[ExecutionContext, _Slots] = weakref.WeakKeyDictionary()


def scratch(run: ExecutionContext, slot: str = "") -> Scratchpad:
    """slot: what may hold numbers at the same time has different slots; "" is oneDNN's own within a
    primitive."""
    return _scratchpads.setdefault(run, weakref.WeakValueDictionary()).setdefault(slot, Scratchpad())


_no_post: list[Attributes] = []


def no_post() -> Attributes:
    """Attributes of a primitive without post-operations."""
    if not _no_post:
        _no_post.append(Attributes())
    return _no_post[0]


class Call:
    """A primitive with its arguments; calling it binds those that are blobs, then runs it."""

    __slots__ = ("primitive", "arguments", "_binds")

    def __init__(self, run: ExecutionContext, desc: PrimitiveDesc, arguments: Mapping[int, Argument]):
        memories = {k: a if isinstance(a, Memory) else a.memory for k, a in arguments.items()}
        pad = desc.desc(SCRATCHPAD_MD)
        if pad.nbytes:
            memories[SCRATCHPAD] = scratch(run).memory(pad)
        self.primitive = Primitive(desc, memories)
        bound = dict.fromkeys(a for a in arguments.values() if not isinstance(a, Memory))
        # What is read first: where it is written in place, binding for writing makes other copies stale.
        self.arguments = sorted(bound, key=lambda a: a.operand.mode != "read")
        self._binds = [a.bind for a in self.arguments]

    def __call__(self) -> None:
        for bind in self._binds:
            bind()
        if RECORDER.events is not None:
            RECORDER.events.append(self)
        self.primitive()


class Region:
    """Part of a blob's memory, as an argument: the operand of the whole, seen through the layout of the
    part."""

    __slots__ = ("memory", "operand")

    def __init__(self, whole: Operand, part: MemoryDesc):
        self.operand, self.memory = whole, Memory(part)

    def bind(self) -> None:
        self.operand.bind()
        self.memory.point(self.operand.memory.address)


Argument = Operand | Region | Memory


def common_layout(blobs: Sequence[Blob]) -> tuple[MemoryDesc, MemoryDesc]:
    """(layout in which blobs of one shape are worked on together, the same as a home): the first home that is
    not plain, else plain memory as one axis."""
    homes = [PLACE.home(blob) for blob in blobs]
    for home in homes:
        if not home.plain:
            return home, home
    return plain((blobs[0].count,)), homes[0]


def first_fast(attempts: Sequence[Callable[[], PrimitiveDesc]]) -> PrimitiveDesc | None:
    """The first attempt that oneDNN has fast code for; its reference code ("ref") is slower than NumPy."""
    for attempt in attempts:
        try:
            desc = attempt()
        except OneDNNError as error:
            if not error.unimplemented:
                raise
            continue
        if "ref" not in desc.implementation:
            return desc
    return None


class Gradient:
    """Where a primitive puts a parameter's gradient: into the diff while that is zero, else beside it and
    then added.

    produced: layout in which the primitive writes it. layout: in which the diff lies; None for produced's.
    on_host: as Operand's. wanted: False throws the gradient away. Use: before(), run the primitive, after().
    """

    def __init__(
        self,
        run: ExecutionContext,
        blob: Blob,
        produced: MemoryDesc,
        wanted: bool,
        layout: MemoryDesc | None = None,
        on_host: bool = False,
    ):
        layout = layout or produced
        self._on_host = on_host
        self.memory, self._blob, self._wanted = Memory(produced), blob, wanted
        self._beside: Buffer | None = None
        self._run, self._layout, self._direct = run, layout, layout is produced
        self._target = Operand(blob, "diff", layout, "write", on_host)
        self._sum: Call | None = None
        self._copy: Call | None = None
        self._into_diff = False

    def before(self) -> None:
        self._into_diff = self._wanted and self._direct and self._blob.diff_mem.is_zero
        if self._into_diff:
            self._target.bind()
            self.memory.point(self._target.memory.address)
            return
        if self._beside is None:
            self._beside = Buffer(self.memory.desc.nbytes)
        self.memory.point(self._beside.address)

    def after(self) -> None:
        if self._into_diff or not self._wanted:
            return
        if self._blob.diff_mem.is_zero:
            if self._copy is None:
                self._copy = Call(
                    self._run,
                    reorder_desc(self.memory.desc, self._layout),
                    {SRC: self.memory, DST: self._target},
                )
            self._copy()
            return
        if self._sum is None:
            own = Operand(self._blob, "diff", self._layout, "modify", self._on_host)
            desc = sum_desc(self._layout, [self._layout, self.memory.desc])
            self._sum = Call(self._run, desc, {MULTIPLE_SRC: own, MULTIPLE_SRC + 1: self.memory, DST: own})
        self._sum()


def reorder_desc(source: MemoryDesc, target: MemoryDesc) -> PrimitiveDesc:
    return PrimitiveDesc.reorder(source, target, no_post())


def sum_desc(
    target: MemoryDesc, sources: Sequence[MemoryDesc], scales: Sequence[float] = ()
) -> PrimitiveDesc:
    return PrimitiveDesc.of_many("sum", target, sources, scales or [1.0] * len(sources), no_post())


class OneDNNKernel(Kernel):
    """A kernel of this engine.

    A subclass defines `prepare`, which is called when a shape, a layout or an alias among its blobs has
    changed, and settles its tops' homes; and it builds what only backward needs in `prepare_backward`, called
    before the first backward after that."""

    def __init__(self, layer: Layer, propagate_down: Sequence[bool] = ()):
        super().__init__(layer, propagate_down)
        self.known: Any = None  # what it is prepared for: a new object whenever that has changed
        self._backward_ready = False

    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        return all(b.dtype == np.float32 and b.count and b.num_axes <= 12 for b in (*bottom, *layer.blobs))

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        blobs = (*bottom, *top)
        known = ([(b.shape, b.data_mem, b.diff_mem) for b in blobs], [PLACE.home(b) for b in bottom])
        if known != self.known:
            self.prepare(run, bottom, top)
            self.known, self._backward_ready = known, False
        else:
            self.settle(top)

    def settle(self, top: Sequence[Blob]) -> None:
        """Tell the tops' homes anew."""
        for blob, home in zip(top, self.top_homes, strict=True):
            PLACE.settle(blob, home)

    top_homes: Sequence[MemoryDesc] = ()

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Build forward, and settle the tops' homes."""
        raise NotImplementedError

    def prepare_backward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Build backward."""

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if not self._backward_ready:
            self.prepare_backward(run, bottom, top)
            self._backward_ready = True
        self.run_backward(run, top, propagate_down, bottom)

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        """A subclass does backward here."""
        raise NotImplementedError
