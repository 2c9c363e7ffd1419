"""Passes of a convolution through Winograd's transforms (winograd.py), made of oneDNN's primitives.

Each part of the images goes through: copy tiles into planes, one for each place in a tile; transform the
planes; a product for each place; transform; copy the planes into the blob. Planes are scratch memory of the
net, two at a time, and so are the transformed weights of a net that trains: a net that only tests keeps them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...execution import ExecutionContext
from .base import Gradient, no_post, scratch
from .layouts import MemoryDesc, plain, strided
from .place import RECORDER, Operand
from .primitives import (
    BIAS,
    BINARY_ADD,
    DST,
    RELU,
    SCRATCHPAD,
    SCRATCHPAD_MD,
    SRC,
    WEIGHTS,
    Attributes,
    Buffer,
    Memory,
    Primitive,
    PrimitiveDesc,
    post_operand,
)
from .winograd import OUT, PLACES, TAPS, Tiling, matrices

FLOAT = 4  # bytes


def weights_layout(shape: Sequence[int]) -> MemoryDesc:
    """Of weights ([group,] outputs, channels, 3, 3): (group, tap, channel, output) in memory, as the
    transforms want them."""
    outputs, channels = shape[-4:-2]
    plane = channels * outputs
    strides = (1, outputs, TAPS * plane, plane)
    return strided(shape, strides if len(shape) == 4 else (TAPS * TAPS * plane, *strides))


def _version(argument: Operand) -> tuple[int, int]:
    return id(argument.mem), argument.mem.version


class _Views:
    """Memories that lie at fixed offsets from where an argument lies at the moment."""

    def __init__(self, argument: Any):
        self._source = argument if isinstance(argument, Memory) else argument.memory
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


class _Builder:
    """Makes primitives that share one net's scratch memory."""

    def __init__(self, run: ExecutionContext):
        self._run = run

    def scratch(self, slot: str, desc: MemoryDesc, offset: int = 0) -> Memory:
        return scratch(self._run, slot).memory(desc, FLOAT * offset)

    def constant(self, array: np.ndarray) -> Memory:
        desc = plain(array.shape)
        memory = Memory(desc, Buffer(desc.nbytes))
        memory.keep.floats[:] = array.reshape(-1)
        return memory

    def matmul(
        self,
        a: Memory,
        b: Memory,
        y: Memory,
        post: Sequence[tuple] = (),
        bias: Memory | None = None,
        extra: dict[int, Memory] | None = None,
        turned: str = "",
    ) -> Primitive:
        """turned: "a" or "b" lies with its last two axes exchanged."""
        left = _turned(a.desc) if "a" in turned else a.desc
        right = _turned(b.desc) if "b" in turned else b.desc
        attributes = Attributes(post) if post else no_post()
        work = sum(math.prod(d.shape) for d in (left, right, y.desc))
        work = max(work, math.prod(left.shape) * right.shape[-1] // 32)
        desc = PrimitiveDesc(
            "matmul", left, right, bias.desc if bias else None, y.desc, attributes, work=work
        )
        memories = {SRC: a, WEIGHTS: b, DST: y, **(extra or {})}
        if bias is not None:
            memories[BIAS] = bias
        pad = desc.desc(SCRATCHPAD_MD)
        if pad.nbytes:
            memories[SCRATCHPAD] = self.scratch("", pad)
        return Primitive(desc, memories)

    def copy(self, source: Memory, target: Memory, add: bool = False) -> Primitive:
        attributes = Attributes([("sum", 1.0)]) if add else no_post()
        desc = PrimitiveDesc.reorder(source.desc, target.desc, attributes)
        return Primitive(desc, {SRC: source, DST: target})


def _turned(desc: MemoryDesc) -> MemoryDesc:
    shape = (*desc.shape[:-2], desc.shape[-1], desc.shape[-2])
    return strided(shape, (*desc.strides[:-2], desc.strides[-1], desc.strides[-2]))


class Weights:
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
        channels, outputs = tiling.channels
        if version is None:
            assert isinstance(argument, Operand)
            version = functools.partial(_version, argument)
        self.argument, self.version, self._kept, self._known = argument, version, kept, object()
        self.desc, self._size = plain((PLACES, channels, outputs)), PLACES * channels * outputs
        self._builder = builder = _Builder(run)
        own = Buffer(FLOAT * self._size * tiling.group) if kept else None
        self._own = own
        self._views = _Views(argument)
        self._primitives: list[Primitive] = []
        source = argument.desc if isinstance(argument, Memory) else argument.memory.desc
        wanted = weights_layout(source.shape)
        flat = plain((TAPS * TAPS, channels * outputs))
        pieces: Callable[[MemoryDesc, int], Memory] = self._views.at
        if source is not wanted:
            self._primitives.append(
                builder.copy(self._views.at(source, 0), builder.scratch("planes", wanted))
            )
            pieces = lambda desc, offset: builder.scratch("planes", desc, offset)  # noqa: E731
        transform = builder.constant(matrices()[1])
        for group in range(tiling.group):
            taps = pieces(flat, group * TAPS * TAPS * channels * outputs)
            target = self.memory(group, plain((PLACES, channels * outputs)))
            self._primitives.append(builder.matmul(transform, taps, target))

    def memory(self, group: int, desc: MemoryDesc | None = None) -> Memory:
        desc = desc or self.desc
        if self._own is None:
            return self._builder.scratch("weights", desc, group * self._size)
        memory = Memory(desc, self._own)
        memory.point(self._own.address + FLOAT * group * self._size)
        return memory

    def refresh(self) -> None:
        version = self.version()
        if self._kept and version == self._known:
            return
        self._views.follow()
        for primitive in self._primitives:
            primitive()
        self._known = version


class _Pass:
    """What is called for a pass on one bottom and its top; like a Call, it may be repeated."""

    arguments: list[Any]

    def __call__(self) -> None:
        for argument in self.arguments:
            argument.bind()
        if RECORDER.events is not None:
            RECORDER.events.append(self)
        self.primitive()

    def primitive(self) -> None:
        """Do it, with the arguments where they were bound."""
        raise NotImplementedError


def _bound(arguments: Iterable[Any]) -> list[Any]:
    return [a for a in arguments if a is not None and not isinstance(a, Memory)]


class Forward(_Pass):
    """arguments: source, target, perhaps a bias and what is added before the ReLU with that slope."""

    def __init__(
        self,
        run: ExecutionContext,
        tiling: Tiling,
        weights: Weights,
        source: Operand,
        target: Operand,
        bias: Operand | Memory | None = None,
        other: Operand | None = None,
        slope: float | None = None,
    ):
        self.arguments = _bound([source, weights.argument, bias, other, target])
        self._weights, self._bias, self._bias_known = weights, bias, object()
        self._views = [_Views(source), _Views(target)]
        if other is not None:
            self._views.append(_Views(other))
        self._primitives: list[Primitive] = []
        self._tiled: list[tuple[int, np.ndarray, Memory]] = []
        builder = _Builder(run)
        image, _, features = (builder.constant(m) for m in matrices())
        post: list[tuple] = []
        for part in tiling.parts():
            tiles = part[1] * math.prod(tiling.grid)
            for group in range(tiling.group):
                patches = gather(builder, tiling, part, group, self._views[0], self._primitives)
                channels, outputs = tiling.channels
                made = plain((OUT * OUT, tiles * outputs))
                post, extra = [], {}
                if other is not None:
                    beside = builder.scratch("beside", made)
                    for copy in tiling.feature_copies(part, group):
                        self._primitives.append(
                            builder.copy(
                                self._views[2].at(copy.blob, copy.blob_offset),
                                builder.scratch("beside", copy.planes, copy.planes_offset),
                            )
                        )
                    post.append(("binary", BINARY_ADD, made))
                    extra[post_operand(0)] = beside
                if slope is not None:
                    post.append(("eltwise", RELU, slope, 0.0))
                planes = plain((PLACES, tiles * channels))
                self._primitives += [
                    builder.matmul(image, patches, builder.scratch("planes", planes)),
                    builder.matmul(
                        builder.scratch("planes", plain((PLACES, tiles, channels))),
                        weights.memory(group),
                        builder.scratch("products", plain((PLACES, tiles, outputs))),
                    ),
                    builder.matmul(
                        features,
                        builder.scratch("products", plain((PLACES, tiles * outputs))),
                        builder.scratch("planes", made),
                        post,
                        self._bias_memory(group, tiles, outputs) if bias is not None else None,
                        extra,
                    ),
                ]
                for copy in tiling.feature_copies(part, group):
                    self._primitives.append(
                        builder.copy(
                            builder.scratch("planes", copy.planes, copy.planes_offset),
                            self._views[1].at(copy.blob, copy.blob_offset),
                        )
                    )

    def _bias_memory(self, group: int, tiles: int, outputs: int) -> Memory:
        """The bias beside itself for each tile."""
        memory = Memory(plain((1, tiles * outputs)), Buffer(FLOAT * tiles * outputs))
        self._tiled.append((group, memory.keep.floats[: tiles * outputs].reshape(tiles, outputs), memory))
        return memory

    def primitive(self) -> None:
        for views in self._views:
            views.follow()
        self._weights.refresh()
        if self._bias is not None:
            self._refresh_bias(self._bias)
        for primitive in self._primitives:
            primitive()

    def _refresh_bias(self, bias: Operand | Memory) -> None:
        version = _version(bias) if isinstance(bias, Operand) else self._weights.version()
        if version == self._bias_known:
            return
        self._bias_known = version
        values = bias.blob.cpu_data() if isinstance(bias, Operand) else bias.keep.floats
        for group, tiled, _ in self._tiled:
            outputs = tiled.shape[1]
            tiled[...] = values[group * outputs : (group + 1) * outputs]


def _slot(tiling: Tiling, part: tuple[int, int], what: str) -> str:
    """Of planes that are not wholly written: the rest of them stays zero."""
    return f"{what} {tiling} {part[1]}"


def gather(
    builder: _Builder,
    tiling: Tiling,
    part: tuple[int, int],
    group: int,
    views: _Views,
    primitives: list[Primitive],
) -> Memory:
    """Copies an image's tiles into planes; those that lie in the padding stay zero."""
    slot = _slot(tiling, part, "image")
    desc = plain((PLACES, part[1] * math.prod(tiling.grid) * tiling.channels[0]))
    for copy in tiling.image_copies(part, group):
        target = builder.scratch(slot, copy.planes, copy.planes_offset)
        primitives.append(builder.copy(views.at(copy.blob, copy.blob_offset), target))
    return builder.scratch(slot, desc)


class Backward(_Pass):
    """The gradients of weights and bias, where they are wanted, and of the image, if it is.

    gradients: of weights and bias, None for those that are not wanted; `before` of each has been called."""

    def __init__(
        self,
        run: ExecutionContext,
        tiling: Tiling,
        source: Operand,
        target: Operand,
        weights: Weights,
        learned: Gradient | None,
        learned_bias: Gradient | None,
        image_diff: Operand | None,
    ):
        needs = [source if learned else None, target, weights.argument if image_diff else None, image_diff]
        self.arguments = _bound(needs)
        self._weights = weights if image_diff is not None else None
        views = {a: _Views(a) for a in (source, target, image_diff) if a is not None}
        memories = [g.memory if g else None for g in (learned, learned_bias)]
        sums = [None if m is None else _Views(m) for m in memories]
        self._views = [*views.values(), *(s for s in sums if s is not None)]
        self._primitives: list[Primitive] = []
        builder = _Builder(run)
        image, taps, features = (builder.constant(m) for m in matrices())
        channels, outputs = tiling.channels
        product = plain((PLACES, channels, outputs))
        for number, part in enumerate(tiling.parts()):
            tiles = part[1] * math.prod(tiling.grid)
            post = [("sum", 1.0)] if number else []
            whole = tiling.tall % OUT == tiling.wide % OUT == 0
            slot = "planes" if whole else _slot(tiling, part, "features")
            for group in range(tiling.group):
                for copy in tiling.feature_copies(part, group):
                    self._primitives.append(
                        builder.copy(
                            views[target].at(copy.blob, copy.blob_offset),
                            builder.scratch(slot, copy.planes, copy.planes_offset),
                        )
                    )
                if sums[1] is not None:
                    self._primitives.append(
                        builder.matmul(
                            builder.constant(np.ones((1, OUT * OUT * tiles), np.float32)),
                            builder.scratch(slot, plain((OUT * OUT * tiles, outputs))),
                            sums[1].at(plain((1, outputs)), group * outputs),
                            post,
                        )
                    )
                if sums[0] is None and image_diff is None:
                    continue
                self._primitives.append(
                    builder.matmul(
                        features,
                        builder.scratch(slot, plain((OUT * OUT, tiles * outputs))),
                        builder.scratch("products", plain((PLACES, tiles * outputs))),
                        turned="a",
                    )
                )
                given = builder.scratch("products", plain((PLACES, tiles, outputs)))
                if sums[0] is not None:
                    patches = gather(builder, tiling, part, group, views[source], self._primitives)
                    self._primitives += [
                        builder.matmul(
                            image, patches, builder.scratch("planes", plain((PLACES, tiles * channels)))
                        ),
                        builder.matmul(
                            builder.scratch("planes", plain((PLACES, tiles, channels))),
                            given,
                            builder.scratch("gradients", product, group * math.prod(product.shape)),
                            post,
                            turned="a",
                        ),
                    ]
                if image_diff is not None:
                    self._primitives += [
                        builder.matmul(
                            given,
                            weights.memory(group),
                            builder.scratch("planes", plain((PLACES, tiles, channels))),
                            turned="b",
                        ),
                        builder.matmul(
                            image,
                            builder.scratch("planes", plain((PLACES, tiles * channels))),
                            builder.scratch("products", plain((PLACES, tiles * channels))),
                            turned="a",
                        ),
                    ]
                    for copy in tiling.image_copies(part, group):
                        self._primitives.append(
                            builder.copy(
                                builder.scratch("products", copy.planes, copy.planes_offset),
                                views[image_diff].at(copy.blob, copy.blob_offset),
                                add=not copy.own,
                            )
                        )
        if sums[0] is not None:
            for group in range(tiling.group):
                self._primitives.append(
                    builder.matmul(
                        taps,
                        builder.scratch(
                            "gradients",
                            plain((PLACES, channels * outputs)),
                            group * math.prod(product.shape),
                        ),
                        sums[0].at(
                            plain((TAPS * TAPS, channels * outputs)),
                            group * TAPS * TAPS * channels * outputs,
                        ),
                        turned="a",
                    )
                )

    def primitive(self) -> None:
        for views in self._views:
            views.follow()
        if self._weights is not None:
            self._weights.refresh()
        for primitive in self._primitives:
            primitive()
