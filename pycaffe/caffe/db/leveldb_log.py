"""LevelDB's log files: the write-ahead log, and the MANIFEST, which has the same format.

A log is a sequence of blocks of 32 KiB. A record is cut into fragments that do not cross blocks:

    fragment  masked CRC-32C of type and data u32, length u16, type u8 (1 whole, 2 first, 3 middle,
              4 last), data; fewer than 7 bytes at the end of a block are padding
    batch     sequence number u64, count u32, then count times: 1, key, value or 0, key (deleted), each
              key and value with its length as a varint before it. Element i has sequence number + i

Source: leveldb's doc/log_format.md.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..errors import DataError
from .crc32c import crc32c, mask
from .files import FileReader

_BLOCK = 32768
_HEADER = struct.Struct("<IHB")
_ROOM = _BLOCK - _HEADER.size
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_BATCH = struct.Struct("<QI")

DELETED, VALUE = 0, 1

_log = logging.getLogger(__name__)


def damaged(file: FileReader, why: str) -> DataError:
    return DataError(f"{file.about}: {file.name} is damaged: {why}; copy or create the database again")


def varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """(number, place after it). Raises IndexError at the end of data, ValueError beyond 64 bits."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a varint of more than 64 bits")


def put_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_records(file: FileReader) -> Iterator[tuple[int, bytes]]:
    """(place of its first fragment, record) for all records of a log.

    A record that the end of the file cuts off is left out with a warning, as LevelDB does: its writer
    died. Anything else that is wrong raises DataError.
    """
    parts: list[bytes] = []
    cut = False
    start = place = 0
    while block := file.read_some(place, _BLOCK):
        at = 0
        while at + _HEADER.size <= len(block):
            crc, length, kind = _HEADER.unpack_from(block, at)
            end = at + _HEADER.size + length
            if kind == 0 and length == 0:
                break  # space that was set aside and never written
            if end > len(block):
                if len(block) == _BLOCK:
                    raise damaged(file, f"the fragment at byte {place + at} leaves its block")
                break
            if crc != mask(crc32c(block[at + 6 : end])):
                raise damaged(file, f"wrong checksum at byte {place + at}")
            if kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST) or (kind in (_WHOLE, _FIRST)) != (not parts):
                raise damaged(file, f"an unexpected fragment of type {kind} at byte {place + at}")
            if not parts:
                start = place + at
            parts.append(block[at + _HEADER.size : end])
            if kind in (_WHOLE, _LAST):
                yield start, b"".join(parts)
                parts = []
            at = end
        cut = at < len(block) < _BLOCK
        place += _BLOCK
    if parts or cut:
        _log.warning("%s: the last record of %s is incomplete and left out", file.about, file.name)


class LogValue(NamedTuple):
    """Where a value stands: in the record whose first fragment is at `start`, `size` bytes from `offset`."""

    file: FileReader
    start: int
    offset: int
    size: int

    def read(self) -> bytes:
        first = _BLOCK - self.start % _BLOCK - _HEADER.size  # data in the record's first fragment
        begin, end = self._place(self.offset, first), self._place(self.offset + self.size - 1, first) + 1
        if not self.size:
            return b""
        raw = self.file.read(begin, end - begin)
        cut = _BLOCK - begin % _BLOCK  # of raw that stands in its first block
        parts = [raw[:cut]]
        parts += [raw[i + _HEADER.size : i + _BLOCK] for i in range(cut, len(raw), _BLOCK)]
        return b"".join(parts)

    def _place(self, offset: int, first: int) -> int:
        if offset < first:
            return self.start + _HEADER.size + offset
        block, rest = divmod(offset - first, _ROOM)
        return (self.start // _BLOCK + 1 + block) * _BLOCK + _HEADER.size + rest


def read_batches(file: FileReader) -> Iterator[tuple[bytes, int, int, LogValue]]:
    """(key, sequence number, VALUE or DELETED, value) of all that a write-ahead log holds, in order."""
    for start, record in read_records(file):
        try:
            sequence, count = _BATCH.unpack_from(record)
            at = _BATCH.size
            for i in range(count):
                kind = record[at]
                size, at = varint(record, at + 1)
                key = record[at : at + size]
                at += size
                size, at = varint(record, at) if kind == VALUE else (0, at)
                if kind not in (VALUE, DELETED):
                    raise ValueError(f"kind {kind}")
                yield key, sequence + i, kind, LogValue(file, start, at, size)
                at += size
            if at != len(record):
                raise ValueError(f"{len(record)} bytes instead of {at}")
        except (IndexError, ValueError, struct.error) as error:
            raise damaged(file, f"no valid batch at byte {start}: {error}") from error


def batch(sequence: int, records: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A write batch that puts all records."""
    out = [_BATCH.pack(sequence, len(records))]
    for key, value in records:
        out += (b"\x01", put_varint(len(key)), key, put_varint(len(value)), value)
    return b"".join(out)


def fragments(record: bytes, place: int) -> bytes:
    """What to append to a log of `place` bytes so that it holds one more record."""
    out = []
    at = 0
    first = True
    while first or at < len(record):
        left = _BLOCK - place % _BLOCK
        if left < _HEADER.size:
            out.append(bytes(left))
            place += left
            left = _BLOCK
        data = record[at : at + left - _HEADER.size]
        last = at + len(data) == len(record)
        kind = (_WHOLE if last else _FIRST) if first else (_LAST if last else _MIDDLE)
        body = bytes((kind,)) + data
        out += (_HEADER.pack(mask(crc32c(body)), len(data), kind), data)
        at += len(data)
        place += _HEADER.size + len(data)
        first = False
    return b"".join(out)
