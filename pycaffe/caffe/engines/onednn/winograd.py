"""Convolutions of 3 x 3 with a quarter of the multiplications.

Winograd's F(4 x 4, 3 x 3), after Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015:
a tile of 4 x 4 outputs needs 6 x 6 of the image, d, and with the weights g is

    Y = Aᵀ [(G g Gᵀ) ⊙ (Bᵀ d B)] A

Summed over input channels, the product ⊙ is a matrix product for each of the 36 places of a tile: (tiles x
channels) times (channels x outputs). Here are the matrices, how tiles cover an image, and when it pays.

The matrices are those of interpolation at 0, ±3/4, ±3/2 and infinity. Of the points tried, these lose the
least in float32: against the largest output the error is 1e-6 with 16 channels to 4e-6 with 512, where a
direct sum has 4e-7 and the usual points 0, ±1, ±2 have 1e-5.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .layouts import MemoryDesc, strided

OUT, TAPS = 4, 3
IN = OUT + TAPS - 1
PLACES = IN * IN
_POINTS = (0.0, 0.75, -0.75, 1.5, -1.5)
# Tiles that are worked on together: few, so that what is passed on stays in the cache; enough rows for the
# products.
_ROWS, _ELEMENTS = 192, 1 << 20
# The time of so many multiplications goes into an element of planes, and into one of transformed weights:
# in training, where backward gains more than forward, and in testing, where weights are transformed once.
_TRAINING, _TESTING = (86.0, 65.0), (80.0, 40.0)
# So many times as long where planes do not stay in the cache; and what starting the primitives takes.
_FAR, _STARTING = 1.35, 3e7


@functools.cache
def matrices() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bᵀ ⊗ Bᵀ (36, 36), G ⊗ G (36, 9) and Aᵀ ⊗ Aᵀ (16, 36), which take both axes of a tile at once."""
    b, g, a = np.zeros((IN, IN)), np.zeros((IN, TAPS)), np.zeros((OUT, IN))
    for j, point in enumerate(_POINTS):
        others = [q for q in _POINTS if q != point]
        b[j, : IN - 1] = np.poly(others)[::-1]
        g[j] = point ** np.arange(TAPS) / np.prod([point - q for q in others])
        a[:, j] = point ** np.arange(OUT)
    b[-1] = np.poly(_POINTS)[::-1]
    g[-1, -1] = a[-1, -1] = 1
    both = [np.kron(m, m).astype(np.float32) for m in (b, g, a)]
    return both[0], both[1], both[2]


@dataclass(frozen=True)
class Piece:
    """Taps of tiles, along one axis: tap + k of tile + i lies at 4 (tile + i) + tap + k - pad, for k < taps
    and i < tiles.

    own: no other tile's own taps lie there; all tiles' own taps cover the axis."""

    tap: int
    taps: int
    tile: int
    tiles: int
    own: bool = True


def image_pieces(size: int, pad: int, tiles: int) -> list[Piece]:
    """Where the taps of tiles lie in an axis of that size; the others lie in the padding.

    The axis is cut in blocks of 4, the last perhaps shorter. A piece takes from each of its blocks the same
    places."""
    whole, rest = divmod(size, OUT)
    pieces: list[Piece] = []

    def add(tap: int, taps: int, tile: int, count: int, ahead: int) -> None:
        if ahead == 1 and tile + count == tiles:  # behind the last tile nobody else owns what is there
            pieces.append(Piece(tap, taps, tiles - 1, 1))
            count -= 1
        if count:
            pieces.append(Piece(tap, taps, tile, count, ahead == 0))

    for ahead in (0, -1, 1):
        taps = [tap for tap in range(IN) if (tap - pad) // OUT == ahead]
        if not taps:
            continue
        first, last = max(0, -ahead), min(tiles, whole - ahead)
        start = taps[0] - pad - OUT * ahead
        inside = min(len(taps), rest - start)  # in the last, shorter block
        if inside == len(taps) and 0 <= last < tiles and OUT * (last + 1 - first) <= size:
            last, inside = last + 1, 0
        if last > first:
            add(taps[0], len(taps), first, last - first, ahead)
        if inside > 0 and 0 <= whole - ahead < tiles:
            add(taps[0], inside, whole - ahead, 1, ahead)
    return pieces


def feature_pieces(size: int) -> list[Piece]:
    whole, rest = divmod(size, OUT)
    pieces = [Piece(0, OUT, 0, whole)] if whole else []
    return [*pieces, Piece(0, rest, whole, 1)] if rest else pieces


@dataclass(frozen=True)
class Copy:
    """The same numbers in a blob and in the planes of tiles, (places, tiles, channels). own: as Piece's."""

    blob: MemoryDesc
    blob_offset: int  # in elements
    planes: MemoryDesc
    planes_offset: int
    own: bool


@dataclass(frozen=True)
class Tiling:
    """How tiles cover a convolution's images (N, C, H, W), whose channels lie in blocks.

    shape: of the image. outputs: of channels. pad: of rows, columns."""

    shape: tuple[int, int, int, int]
    outputs: int
    group: int
    pad: tuple[int, int]
    block: int

    @property
    def tall(self) -> int:
        return self.shape[2] + 2 * self.pad[0] - TAPS + 1

    @property
    def wide(self) -> int:
        return self.shape[3] + 2 * self.pad[1] - TAPS + 1

    @property
    def grid(self) -> tuple[int, int]:
        return -(-self.tall // OUT), -(-self.wide // OUT)

    @property
    def channels(self) -> tuple[int, int]:
        """Of image and features, within a group."""
        return self.shape[1] // self.group, self.outputs // self.group

    def pays(self, trains: bool) -> bool:
        """Is it less work than the direct sum? Counted in multiplications, as measured on two cores with
        AVX-512 (docs/performance.md); a rule, not a race, so that a net computes the same on every run."""
        images, tiles, (channels, outputs) = self.shape[0], math.prod(self.grid), self.channels
        places, weights = PLACES * images * tiles, channels * outputs
        direct = TAPS * TAPS * images * self.tall * self.wide * weights
        element, weight = _TRAINING if trains else _TESTING
        if PLACES * self.parts()[0][1] * tiles * max(self.channels) > 4 * _ELEMENTS:
            element *= _FAR
        ours = places * (weights + element * (channels + outputs)) + weight * PLACES * weights + _STARTING
        return ours < direct

    def tiles(self, part: tuple[int, int]) -> int:
        return part[1] * math.prod(self.grid)

    def parts(self) -> list[tuple[int, int]]:
        """(first image, images) that are worked on together."""
        images, tiles = self.shape[0], math.prod(self.grid)
        wanted = max(_ROWS, _ELEMENTS // (PLACES * max(self.channels)))
        count = max(1, round(images * tiles / wanted))
        step = -(-images // min(count, images))
        return [(n, min(step, images - n)) for n in range(0, images, step)]

    def image_copies(self, part: tuple[int, int], group: int) -> Iterator[Copy]:
        """Own pieces first."""
        rows, columns = (
            image_pieces(size, pad, tiles)
            for size, pad, tiles in zip(self.shape[2:], self.pad, self.grid, strict=True)
        )
        copies = list(
            self._copies(part, group, self.shape[1:], self.channels[0], IN, self.pad, rows, columns)
        )
        return iter(sorted(copies, key=lambda copy: not copy.own))

    def feature_copies(self, part: tuple[int, int], group: int) -> Iterator[Copy]:
        rows, columns = feature_pieces(self.tall), feature_pieces(self.wide)
        whole = (self.outputs, self.tall, self.wide)
        return self._copies(part, group, whole, self.channels[1], OUT, (0, 0), rows, columns)

    def _copies(
        self,
        part: tuple[int, int],
        group: int,
        whole: tuple[int, ...],
        channels: int,
        side: int,
        pad: tuple[int, int],
        rows: list[Piece],
        columns: list[Piece],
    ) -> Iterator[Copy]:
        (first, images), (down, across), b = part, self.grid, self.block
        _, height, width = whole
        image, plane = math.prod(whole), images * down * across * channels
        for row in rows:
            for column in columns:
                shape = (images, row.tiles, row.taps, column.tiles, column.taps, channels // b, b)
                blob = (image, OUT * width * b, width * b, OUT * b, b, height * width * b, 1)
                planes = (
                    down * across * channels,
                    across * channels,
                    side * plane,
                    channels,
                    plane,
                    b,
                    1,
                )
                top = OUT * row.tile + row.tap - pad[0]
                left = OUT * column.tile + column.tap - pad[1]
                yield Copy(
                    strided(shape, blob),
                    first * image + group * channels * height * width + (top * width + left) * b,
                    strided(shape, planes),
                    (row.tap * side + column.tap) * plane + (row.tile * across + column.tile) * channels,
                    row.own and column.own,
                )
