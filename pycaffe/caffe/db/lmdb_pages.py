"""The file format of LMDB 0.9 (data.mdb), as far as walking the main database in key order needs.

A file is an array of pages. Pages 0 and 1 are meta pages, each describing one commit: the newer one
holds. Records stand in leaf pages, found through branch pages of which every path has md_depth
levels; a value too large for a leaf stands on a run of overflow pages.

    page      pgno u64, pad u16, flags u16, lower u16, upper u16 (overflow: number of pages u32), then
              (lower - 16) / 2 node offsets u16, then free space, then the nodes
    node      lo u16, hi u16, flags u16, key size u16, key, data.
              leaf: size = lo | hi << 16, data = the value, or with BIG the page number u64 of it
              branch: child page = lo | hi << 16 | flags << 32; the first key is empty
    meta      at byte 16: magic u32, version u32, address u64, map size u64, two databases (free pages,
              main), last page u64, transaction u64. The pad of the free database is the page size
    database  pad u32, flags u16, depth u16, branch, leaf and overflow pages u64, entries u64, root u64

All numbers are read with the byte order and word size of 64-bit little-endian machines. Nothing in a
file is believed: page numbers, offsets, levels, sizes and the order of the keys are checked, so
that a damaged file raises DataError and a loop in it ends.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ..errors import DataError
from .files import FileReader

_MAGIC = 0xBEEFC0DE
_VERSION = 1
_NONE = 0xFFFFFFFFFFFFFFFF  # the root of an empty database
BRANCH, LEAF, OVERFLOW, _META = 0x01, 0x02, 0x04, 0x08
KIND = BRANCH | LEAF | OVERFLOW | _META | 0x20 | 0x40
BIG, SUB, DUP = 0x01, 0x02, 0x04
HEADER = struct.Struct("<QHHHH")
_META_PAGE = struct.Struct("<IIQQ IHHQQQQQ IHHQQQQQ QQ")
NODE = struct.Struct("<HHHH")
_PAGES = struct.Struct("<I")
NUMBER = struct.Struct("<Q")
_MOST_LEVELS = 32
LAST_PAGE = 1 << 46  # beyond any file, and its offset still fits the system's 64 bits


class Snapshot(NamedTuple):
    """One commit: its number, the main database's root page (None: empty), depth and entries, and the
    number of pages that the file had."""

    transaction: int
    root: int | None
    depth: int
    entries: int
    pages: int


class LMDBFile(FileReader):
    """data.mdb: gives checked pages."""

    def __init__(self, path: str, about: str):
        super().__init__(path, about)
        try:
            self.page_size = self._find_page_size()
        except DataError:
            self.close()
            raise

    def damaged(self, why: str) -> DataError:
        return DataError(f"{self.about}: {self.name} is damaged: {why}; copy or create the database again")

    def _find_page_size(self) -> int:
        head = self.read_some(0, 16 + _META_PAGE.size)
        magic = _MAGIC.to_bytes(4, "little")
        if head[12:16] == magic:
            raise DataError(f"{self.about}: it comes from a 32-bit machine; write it anew on a 64-bit one")
        if magic[::-1] in (head[12:16], head[16:20]):
            raise DataError(f"{self.about}: it was written on a big-endian machine; write it anew")
        if len(head) < 16 + _META_PAGE.size or head[16:20] != magic:
            kind = "is empty" if not head else "is no LMDB data file"
            raise DataError(f"{self.about}: {self.name} ({self.size} bytes) {kind}; copy or create it again")
        meta = _META_PAGE.unpack_from(head, 16)
        if meta[1] != _VERSION:
            raise DataError(f"{self.about}: LMDB data version {meta[1]}; only {_VERSION} (0.9) is read")
        page_size = meta[4]
        if not 256 <= page_size <= 65536 or page_size & (page_size - 1):
            raise self.damaged(f"a page size of {page_size} bytes")
        return page_size

    def newest(self) -> Snapshot:
        """The state of the last commit."""
        metas = []
        for number in (0, 1):
            page = self.read(number * self.page_size, 16 + _META_PAGE.size)
            meta = _META_PAGE.unpack_from(page, 16)
            if meta[0] == _MAGIC and meta[1] == _VERSION and HEADER.unpack_from(page)[2] & _META:
                metas.append(meta)
        if not metas:
            raise self.damaged("no valid meta page")
        meta = max(metas, key=lambda m: m[-1])
        flags, depth, entries, root = meta[13], meta[14], meta[18], meta[19]
        if flags & 0x7FFF:
            raise DataError(
                f"{self.about}: its records have reversed, integer or duplicate keys (flags {flags:#x}), "
                "which no tool of Caffe writes"
            )
        if depth > _MOST_LEVELS or (root == _NONE) != (entries == 0):
            raise self.damaged(f"a tree of depth {depth} with {entries} records")
        return Snapshot(meta[-1], None if root == _NONE else root, depth, entries, meta[-2] + 1)

    def page(self, number: int, kind: int) -> tuple[bytes, tuple[int, ...]]:
        """Page `number`, which must be a branch or leaf page, and the offsets of its nodes."""
        size = self.page_size
        page = self.read(min(number, LAST_PAGE) * size, size)
        pgno, _, flags, lower, upper = HEADER.unpack_from(page)
        if pgno != number or flags & KIND != kind or not 16 <= lower <= upper <= size:
            wanted = "leaf" if kind == LEAF else "branch"
            raise self.damaged(f"page {number} is no {wanted} page (number {pgno}, flags {flags:#x})")
        count = (lower - 16) // 2
        offsets = struct.unpack_from(f"<{count}H", page, 16)
        if not count or min(offsets) < lower or max(offsets) > size - NODE.size:
            raise self.damaged(f"page {number} has nodes outside of it")
        return page, offsets

    def overflow(self, number: int, size: int) -> bytes:
        """A value of this size that stands on overflow pages."""
        start = min(number, LAST_PAGE) * self.page_size
        header = self.read(start, 16)
        pgno, _, flags, _, _ = HEADER.unpack_from(header)
        room = _PAGES.unpack_from(header, 12)[0] * self.page_size - 16
        if pgno != number or flags & KIND != OVERFLOW or size > room:
            raise self.damaged(f"page {number} holds no value of {size} bytes")
        return self.read(start + 16, size)

    def page_end(self, offset: int) -> int:
        """Where the page ends that this offset lies on."""
        return (offset | self.page_size - 1) + 1
