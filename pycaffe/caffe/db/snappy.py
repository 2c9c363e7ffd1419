"""Snappy decompression (format_description.txt of google/snappy)."""

from __future__ import annotations


class SnappyError(ValueError):
    """Bytes that are no snappy block."""


_MOST_GROWTH = 22  # a copy of 3 bytes gives at most 64


def decompress(data: bytes) -> bytes:
    """The content of one snappy block. Raises SnappyError when it is damaged."""
    try:
        size, at = _length(data)
        if size > _MOST_GROWTH * len(data):
            raise SnappyError(f"{len(data)} bytes cannot hold {size}")
        out = bytearray()
        end = len(data)
        while at < end:
            tag = data[at]
            kind, at = tag & 3, at + 1
            if kind == 0:
                length = (tag >> 2) + 1
                if length > 60:
                    extra = length - 60
                    length = int.from_bytes(data[at : at + extra], "little") + 1
                    at += extra
                if at + length > end:
                    raise SnappyError("a literal ends after the data")
                out += data[at : at + length]
                at += length
                continue
            if kind == 1:
                length, offset = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | data[at]
                at += 1
            elif kind == 2:
                length, offset = (tag >> 2) + 1, data[at] | data[at + 1] << 8
                at += 2
            else:
                length, offset = (tag >> 2) + 1, int.from_bytes(data[at : at + 4], "little")
                at += 4
            start = len(out) - offset
            if not offset or start < 0:
                raise SnappyError("a copy from before the start")
            if offset >= length:
                out += out[start : start + length]
            else:  # the copy overlaps what it writes: the last `offset` bytes repeat
                out += (out[start:] * (length // offset + 1))[:length]
    except IndexError:
        raise SnappyError("it ends too early") from None
    if len(out) != size:
        raise SnappyError(f"{len(out)} bytes came out instead of {size}")
    return bytes(out)


def _length(data: bytes) -> tuple[int, int]:
    value = 0
    for i in range(5):
        value |= (data[i] & 0x7F) << 7 * i
        if data[i] < 0x80:
            return value, i + 1
    raise SnappyError("a length of more than 32 bits")
