"""LMDB's cursor: a walk over the leaves in the order of the keys."""

from __future__ import annotations

import numpy as np

from ..errors import DataError
from .base import Accept, Cursor, Piece
from .lmdb_blocks import Leaves, read_leaves, read_values, windows
from .lmdb_pages import BIG, BRANCH, DUP, LEAF, NODE, NUMBER, SUB, LMDBFile, Snapshot

_PAGE_NUMBER = np.uint64((1 << 48) - 1)  # a branch node's child; above it is the size of its key
_WINDOW = 1 << 20  # so many bytes of neighbouring leaves are read at once
_MOST_PIECES = 4  # of rows: from leaves that lie further apart, reading one by one is as fast


class LMDBCursor(Cursor):
    """A place in the main database of one snapshot. Leaves that stand side by side are read at once."""

    def __init__(self, file: LMDBFile, snapshot: Snapshot):
        self._file, self._snapshot = file, snapshot
        self._valid = False
        self._path: list[tuple[np.ndarray, int]] = []  # children of branch pages, and the last one taken
        self._leaves = self._newest = Leaves(-1, -1, b"", np.zeros(0, np.int64))
        self._offsets: list[int] = []  # of the leaves' nodes, once one of them has been asked for
        self._block: tuple[Leaves, np.ndarray | None] = self._leaves, None  # all values of some leaves
        self._index = 0
        self._last_key = b""

    def seek_to_first(self) -> None:
        self._start(0)

    def seek_to_last(self) -> None:
        """Go to the largest key."""
        self._start(-1)

    def valid(self) -> bool:
        return self._valid

    def _start(self, end: int) -> None:
        self._path.clear()
        self._last_key = b""
        self._valid = self._snapshot.root is not None
        if self._snapshot.root is not None:
            self._descend(self._snapshot.root, end)

    def _descend(self, number: int, end: int) -> None:
        """Follow the first (end = 0) or last (-1) children of page `number` down to a leaf."""
        while len(self._path) < self._snapshot.depth - 1:
            page, offsets = self._file.page(number, BRANCH)
            nodes = windows(page, NODE.size)[list(offsets)].view("<u8").ravel()
            children = (nodes & _PAGE_NUMBER).astype(np.int64)
            child = end % len(children)
            self._path.append((children, child))
            number = int(children[child])
        if self._newest.first != number:
            self._newest = self._load(number)
        self._leaves = leaves = self._newest
        self._offsets = []
        if self._path:
            children, child = self._path[-1]
            self._path[-1] = children, child + leaves.last - leaves.first
        self._index = end % len(leaves.nodes)
        first, last = self._key(int(leaves.nodes[0])), self._key(int(leaves.nodes[-1]))
        # Leaves that ascend strictly cannot repeat, so that this also ends a walk in a circle.
        if not self._last_key < first <= last:
            raise self._file.damaged(f"the keys of page {number} are out of order")
        self._last_key = last

    def _load(self, number: int) -> Leaves:
        """The leaf with this number, which the path ends at, and those after it that stand beside it."""
        count = 1
        if self._path:
            children, child = self._path[-1]
            others = children[child : child + _WINDOW // self._file.page_size]
            beside = others == np.arange(number, number + len(others))
            count = len(others) if beside.all() else int(beside.argmin())
        if count > 1 and (leaves := read_leaves(self._file, number, count)) is not None:
            return leaves
        page, offsets = self._file.page(number, LEAF)
        return Leaves(number, number, page, np.array(offsets))

    def next(self) -> None:
        self._index += 1
        if self._index >= len(self._leaves.nodes):
            self._next_leaf()

    def _next_leaf(self) -> None:
        while self._path:
            children, child = self._path.pop()
            if child + 1 < len(children):
                self._path.append((children, child + 1))
                self._descend(int(children[child + 1]), 0)
                return
        self._valid = False

    def skip(self, count: int) -> int:
        passed = 0  # leaf by leaf
        while self._valid and passed < count:
            step = min(count - passed, len(self._leaves.nodes) - self._index)
            passed += step
            self._index += step
            if self._index >= len(self._leaves.nodes):
                self._next_leaf()
        return passed

    def _key(self, offset: int) -> bytes:
        size = NODE.unpack_from(self._leaves.data, offset)[3]
        if offset + 8 + size > self._file.page_end(offset):
            raise self._file.damaged("a key ends outside of its page")
        return self._leaves.data[offset + 8 : offset + 8 + size]

    def _offset(self) -> int:
        """Of this record's node."""
        if not self._offsets:
            self._offsets = self._leaves.nodes.tolist()
        return self._offsets[self._index]

    def key(self) -> bytes:
        return self._key(self._offset())

    def value(self) -> bytes:
        offset, data = self._offset(), self._leaves.data
        low, high, flags, key_size = NODE.unpack_from(data, offset)
        start, size = offset + 8 + key_size, low | high << 16
        if flags & (SUB | DUP):
            raise DataError(f"{self._file.about}: it holds named databases or duplicate keys, not records")
        if flags & BIG:
            if start + 8 > self._file.page_end(offset):
                raise self._file.damaged("a value's page number stands outside of its page")
            return self._file.overflow(NUMBER.unpack_from(data, start)[0], size)
        if start + size > self._file.page_end(offset):
            raise self._file.damaged("a value ends outside of its page")
        return data[start : start + size]

    def rows(self, count: int, step: int, most: int, accept: Accept) -> bool:
        place = self._path.copy(), self._leaves, self._index, self._last_key
        try:
            pieces = self._pieces(count, step, most)
        except DataError:  # is met again when the records are read one by one
            pieces = []
        taken = bool(pieces) and accept(pieces)
        if not taken:
            self._path, self._leaves, self._index, self._last_key = place
            self._offsets, self._valid = [], True
        return taken

    def _pieces(self, count: int, step: int, most: int) -> list[Piece]:
        """What rows() gives, or nothing; then the cursor may have moved."""
        found: list[Piece] = []
        while len(found) < _MOST_PIECES and self._valid:
            if self._block[0] is not self._leaves:
                self._block = self._leaves, read_values(self._file, self._leaves)
            block = self._block[1]
            if block is None or block.shape[1] > most:
                break
            chosen = range(self._index, len(block), step)[:count]
            found.append((block, slice(chosen.start, chosen.stop, step)))
            count -= len(chosen)
            if not count:
                self._index = chosen[-1]
                return found
            self.skip(len(chosen) * step)
        return []
