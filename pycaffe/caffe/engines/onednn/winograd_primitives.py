"""What passes of Winograd's transforms (winograd.py) are made of: copies between blobs and planes, products,
and weights as products take them."""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ...execution import ExecutionContext
from .base import first_fast, no_post, scratch
from .layouts import MemoryDesc, plain, strided
from .place import Operand
from .primitives import (
    BIAS,
    DST,
    SCRATCHPAD,
    SCRATCHPAD_MD,
    SRC,
    WEIGHTS,
    Attributes,
    Buffer,
    Memory,
    Primitive,
    PrimitiveDesc,
)
from .winograd import PLACES, TAPS, Copy, Tiling, matrices

FLOAT = 4  # bytes


def weights_layout(shape: Sequence[int]) -> MemoryDesc:
    """Of weights ([group,] outputs, channels, 3, 3): (group, tap, channel, output) in memory, as the
    transforms want them."""
    outputs, channels = shape[-4:-2]
    plane = channels * outputs
    strides = (1, outputs, TAPS * plane, plane)
    return strided(shape, strides if len(shape) == 4 else (TAPS * TAPS * plane, *strides))


def version_of(argument: Operand) -> tuple[object, int]:
    """Which array it is, and which values are in it. A reference, since an id may come again."""
    return weakref.ref(argument.mem), argument.mem.version


@functools.lru_cache(maxsize=1024)
def has_fast_products(tiles: int, channels: int, outputs: int) -> bool:
    """Has oneDNN more than its reference code for the products of all passes on this machine?"""
    seen, made = plain((PLACES, tiles, channels)), plain((PLACES, tiles, outputs))
    weights = plain((PLACES, channels, outputs))
    turned_seen = strided((PLACES, channels, tiles), (tiles * channels, 1, channels))
    turned_weights = strided((PLACES, outputs, channels), (channels * outputs, 1, outputs))
    products = [(seen, weights, made), (turned_seen, made, weights), (made, turned_weights, seen)]
    return all(
        first_fast([functools.partial(PrimitiveDesc, "matmul", a, b, None, y, no_post())]) is not None
        for a, b, y in products
    )


class _Views:
    """Memories that lie at fixed offsets from where another lies at the moment."""

    def __init__(self, source: Memory):
        self._source = source
        self._address, self._views = 0, list[tuple[Memory, int]]()

    def at(self, desc: MemoryDesc, offset: int) -> Memory:
        """offset: in elements."""
        memory = Memory(desc)
        self._views.append((memory, FLOAT * offset))
        self._address = 0
        return memory

    def follow(self) -> None:
        address = self._source.address
        if address != self._address:
            for memory, offset in self._views:
                memory.point(address + offset)
            self._address = address


class TilePrimitives:
    """Primitives that are run one after the other, on memory of arguments and on the net's scratch memory.

    Slots of that: "planes" and "products" in turn, what a transform reads and what it writes; others as they
    are named where they are used."""

    def __init__(self, run: ExecutionContext, tiling: Tiling):
        self._run, self._tiling = run, tiling
        self._list: list[Primitive] = []
        self._views: dict[Memory, _Views] = {}

    def run_all(self) -> None:
        for views in self._views.values():
            views.follow()
        for primitive in self._list:
            primitive()

    def view(self, argument: Operand | Memory, desc: MemoryDesc, offset: int) -> Memory:
        memory = argument if isinstance(argument, Memory) else argument.memory
        return self._views.setdefault(memory, _Views(memory)).at(desc, offset)

    def scratch(self, slot: str, desc: MemoryDesc, offset: int = 0) -> Memory:
        """offset: in elements."""
        return scratch(self._run, slot).memory(desc, FLOAT * offset)

    def planes(self, slot: str, *shape: int) -> Memory:
        return self.scratch(slot, plain(shape))

    def copy(self, source: Memory, target: Memory, add: bool = False) -> None:
        attributes = Attributes([("sum", 1.0)]) if add else no_post()
        desc = PrimitiveDesc.reorder(source.desc, target.desc, attributes)
        self._list.append(Primitive(desc, {SRC: source, DST: target}))

    def product(
        self,
        a: Memory,
        b: Memory,
        y: Memory,
        post: Sequence[tuple] = (),
        extra: Mapping[int, Memory] | None = None,
    ) -> None:
        """y = a · b, of the last two axes. extra: further arguments, such as a bias."""
        memories = {SRC: a, WEIGHTS: b, DST: y, **(extra or {})}
        bias = memories[BIAS].desc if BIAS in memories else None
        work = max(
            sum(math.prod(memory.desc.shape) for memory in (a, b, y)),
            math.prod(a.desc.shape) * b.desc.shape[-1] // 32,
        )
        attributes = Attributes(post) if post else no_post()
        desc = PrimitiveDesc("matmul", a.desc, b.desc, bias, y.desc, attributes, work=work)
        pad = desc.desc(SCRATCHPAD_MD)
        if pad.nbytes:
            memories[SCRATCHPAD] = self.scratch("", pad)
        self._list.append(Primitive(desc, memories))

    def gather(self, argument: Operand, copies: Iterable[Copy], slot: str) -> None:
        """From a blob into planes."""
        for copy in copies:
            self.copy(
                self.view(argument, copy.blob, copy.blob_offset),
                self.scratch(slot, copy.planes, copy.planes_offset),
            )

    def scatter(self, argument: Operand, copies: Iterable[Copy], slot: str) -> None:
        """From planes into a blob; what is not a tile's own is added."""
        for copy in copies:
            self.copy(
                self.scratch(slot, copy.planes, copy.planes_offset),
                self.view(argument, copy.blob, copy.blob_offset),
                add=not copy.own,
            )

    def image_planes(self, argument: Operand, part: tuple[int, int], group: int) -> Memory:
        """Bᵀ d B of a part, before the transform. The planes keep the zeros of the padding."""
        slot = f"image {self._tiling} {part[1]}"
        self.gather(argument, self._tiling.image_copies(part, group), slot)
        return self.planes(slot, PLACES, self._tiling.tiles(part) * self._tiling.channels[0])


def constant(array: np.ndarray) -> Memory:
    desc = plain(array.shape)
    memory = Memory(desc, Buffer(desc.nbytes))
    memory.keep.floats[: array.size] = array.reshape(-1)
    return memory


@functools.cache
def transforms(turned: bool = False) -> tuple[Memory, Memory, Memory]:
    """Of image, weights and features; turned: transposed, for the way back."""
    image, weights, features = (constant(matrix.T if turned else matrix) for matrix in matrices())
    return image, weights, features


class Weights(TilePrimitives):
    """A convolution's weights as products take them: (place, channel, output) for each group.

    argument: where they come from. version: changes with them, where that is a memory. kept: in memory of
    their own, transformed again only when they have changed; else in scratch memory, in each pass."""

    def __init__(
        self,
        run: ExecutionContext,
        tiling: Tiling,
        argument: Operand | Memory,
        kept: bool,
        version: Callable[[], object] | None = None,
    ):
        super().__init__(run, tiling)
        if version is None:
            assert isinstance(argument, Operand)
            version = functools.partial(version_of, argument)
        self.argument, self.version, self._kept, self._known = argument, version, kept, object()
        channels, outputs = tiling.channels
        size = channels * outputs
        self._own = Buffer(FLOAT * PLACES * size * tiling.group) if kept else None
        layout = argument.desc if isinstance(argument, Memory) else argument.memory.desc
        wanted = weights_layout(layout.shape)
        if layout is not wanted:
            self.copy(self.view(argument, layout, 0), self.scratch("planes", wanted))
        for group in range(tiling.group):
            taps, offset = plain((TAPS * TAPS, size)), group * TAPS * TAPS * size
            source = (
                self.view(argument, taps, offset)
                if layout is wanted
                else self.scratch("planes", taps, offset)
            )
            self.product(transforms()[1], source, self.memory(group, plain((PLACES, size))))

    def memory(self, group: int, desc: MemoryDesc) -> Memory:
        """Of a group, seen in that layout."""
        offset = group * math.prod(desc.shape)
        if self._own is None:
            return self.scratch("weights", desc, offset)
        memory = Memory(desc, self._own)
        memory.point(self._own.address + FLOAT * offset)
        return memory

    def refresh(self) -> None:
        version = self.version()
        if not self._kept or version != self._known:
            self.run_all()
            self._known = version
