"""Many pages of an LMDB at once: leaves that stand side by side, and all values of such leaves as one array.

What is wrong with any page makes these functions return None; reading page by page (lmdb_pages.py) says what
it is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .lmdb_pages import BIG, HEADER, KIND, LAST_PAGE, LEAF, NODE, NUMBER, OVERFLOW, LMDBFile

_LARGEST_BLOCK = 1 << 22  # bytes of values that are taken out of leaves at once


class Leaves(NamedTuple):
    """A leaf page, or several that stand side by side: the numbers of the first and the last, their bytes,
    and the offsets of their nodes."""

    first: int
    last: int
    data: bytes
    nodes: np.ndarray


def read_leaves(file: LMDBFile, first: int, count: int) -> Leaves | None:
    """Up to `count` leaf pages that stand side by side, in one piece, and the offsets of all their nodes in
    it, in order. None where something is wrong with any of them or with the order of their keys."""
    size = file.page_size
    data = file.read_some(min(first, LAST_PAGE) * size, count * size)
    count = len(data) // size
    if not count:
        return None
    file.announce((first + count) * size, count * size)
    table = np.frombuffer(data, "<u2", count * size // 2).reshape(count, size // 2)
    numbers = np.frombuffer(data, "<u8", count * size // 8).reshape(count, size // 8)[:, 0]
    flags, lower, upper = (table[:, i].astype(np.int64) for i in (5, 6, 7))
    starts = np.arange(0, count * size, size)
    if (
        (numbers != np.arange(first, first + count)).any()
        or (flags & KIND != LEAF).any()
        or lower.min() < 16 + 2
        or (lower > upper).any()
        or upper.max() > size
    ):
        return None
    counts = lower // 2 - 8
    most = int(counts.max())
    there = np.arange(most) < counts[:, None]
    offsets = table[:, 8 : 8 + most].astype(np.int64)
    if ((offsets < lower[:, None]) & there).any() or offsets[there].max() > size - NODE.size:
        return None
    nodes = (offsets + starts[:, None])[there]
    after = counts.cumsum()
    ends = np.stack([nodes[after - counts], nodes[after - 1]], axis=1).ravel()
    key_sizes = windows(data, NODE.size)[ends].view("<u2")[:, 3]
    if ((ends & size - 1) + NODE.size + key_sizes > size).any():
        return None
    keys = _strings(data, ends + NODE.size, key_sizes)
    ascending = (keys[::2] <= keys[1::2]).all() and (keys[1:-1:2] < keys[2::2]).all()
    return Leaves(first, first + count - 1, data, nodes) if ascending else None


def read_values(file: LMDBFile, leaves: Leaves) -> np.ndarray | None:
    """The values of all nodes of these leaves as an array (values, size) of bytes. None unless all are sound,
    of one size and not too large together."""
    heads = windows(leaves.data, NODE.size)[leaves.nodes].view("<u2")
    low, high, flags, _ = heads[0].tolist()
    size = low | high << 16
    if not 0 < size * len(heads) <= _LARGEST_BLOCK or flags & ~BIG or (heads[:, :3] != heads[0, :3]).any():
        return None
    starts = leaves.nodes + NODE.size + heads[:, 3]
    length = NUMBER.size if flags else size
    if (starts + length > (leaves.nodes | file.page_size - 1) + 1).any():
        return None
    found = windows(leaves.data, length)[starts]
    return _overflows(file, found.view("<u8").ravel(), size) if flags else found


def _overflows(file: LMDBFile, numbers: np.ndarray, size: int) -> np.ndarray | None:
    """Values of this size, which stand on overflow pages that begin with these, as an array (values, size)
    of bytes. None where one is wrong, or where they are not near each other and in order."""
    each, first = -(-(16 + size) // file.page_size), int(numbers[0])
    if first >= LAST_PAGE:
        return None
    places = numbers.astype(np.int64) - first
    span = int(places[-1]) + each
    if (np.diff(places) < each).any() or span > 2 * len(numbers) * each:
        return None
    data = file.read_some(first * file.page_size, span * file.page_size)
    if len(data) < span * file.page_size:
        return None
    file.announce((first + span) * file.page_size, len(data))
    starts = places * file.page_size
    heads = windows(data, HEADER.size)[starts]
    pages = heads.view("<u4")[:, 3].astype(np.int64)
    if (
        (heads.view("<u8")[:, 0] != numbers).any()
        or (heads.view("<u2")[:, 5] & KIND != OVERFLOW).any()
        or (pages * file.page_size - 16 < size).any()
    ):
        return None
    return windows(data, size)[starts + 16]


def windows(data: bytes, size: int) -> np.ndarray:
    """Row i is data[i : i + size]; a view."""
    return np.ndarray((len(data) - size + 1, size), np.uint8, data, 0, (1, 1))


def _strings(data: bytes, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The keys that start there, of these sizes, as an array that compares as they do."""
    size = int(sizes[0])
    if size and (sizes == size).all():
        return windows(data, size)[starts].view(f"S{size}").ravel()
    bounds = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
    return np.array([data[start:stop] for start, stop in bounds], object)
