"""Protobuf's wire format, one field at a time.

    message = (tag value)*          tag = varint(number << 3 | wire type)
    wire type 0 varint | 1 eight bytes | 2 varint(length) bytes | 3 ... 4 group | 5 four bytes

Walker cuts a buffer of any size into fields without copying; WireError tells the file and the byte.
Source: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from ..errors import WireError

VARINT, FIXED64, BYTES, GROUP, GROUP_END, FIXED32 = range(6)

_GROUPS = 100  # groups within groups; protobuf's own limit


class Span(NamedTuple):
    """One field in a buffer: the tag at [at, start), the value at [start, stop), without a length prefix.

    `next` is where the following field begins (it differs from `stop` for groups).
    """

    number: int
    wire: int
    at: int
    start: int
    stop: int
    next: int


class Walker:
    """Fields of a buffer. `name` is its file, for errors."""

    def __init__(self, view: memoryview, name: str):
        self.view, self.name = view, name

    def fail(self, at: int, message: str) -> NoReturn:
        raise WireError(f"{self.name}: byte {at}: {message}")

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """The number that begins at `at`, and where it ends."""
        value = shift = 0
        start, view = at, self.view
        while at < end:
            byte = view[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
            if shift > 63:
                self.fail(start, "a number longer than 10 bytes")
        self.fail(start, "the data end within a number: the file is truncated or damaged")

    def field(self, at: int, end: int) -> Span:
        """The field that begins at `at` in a message that ends at `end`. Groups are passed over whole."""
        span = self._head(at, end)
        if span.wire == GROUP_END:
            self.fail(at, f"group {span.number} ends without having begun")
        if span.wire != GROUP:
            return span
        open_groups, inner = [span.number], span
        while open_groups:
            inner = self._head(inner.next, end)
            if inner.wire == GROUP:
                open_groups.append(inner.number)
                if len(open_groups) > _GROUPS:
                    self.fail(inner.at, f"more than {_GROUPS} groups within each other")
            elif inner.wire == GROUP_END:
                begun = open_groups.pop()
                if inner.number != begun:
                    self.fail(inner.at, f"group {inner.number} ends where group {begun} is open")
        return span._replace(stop=inner.at, next=inner.next)

    def _head(self, at: int, end: int) -> Span:
        """The same, but of a group only its tag."""
        if at >= end:
            self.fail(at, "the data end within a group: the file is truncated or damaged")
        tag, start = self.varint(at, end)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 2**29 or start - at > 5:
            self.fail(at, f"{number} is no field number")
        if wire == VARINT:
            stop = self.varint(start, end)[1]
        elif wire == BYTES:
            length, start = self.varint(start, end)
            stop = start + length
        elif wire == FIXED32:
            stop = start + 4
        elif wire == FIXED64:
            stop = start + 8
        elif wire in (GROUP, GROUP_END):
            stop = start
        else:
            self.fail(at, f"wire type {wire} of field {number} does not exist")
        if stop > end:
            self.fail(
                at,
                f"field {number} has {stop - start} bytes, but its message ends after {end - start}: "
                "the file is truncated or damaged",
            )
        return Span(number, wire, at, start, stop, stop)


def varint(value: int) -> bytes:
    """A number >= 0 as varint."""
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


def head(number: int, length: int) -> bytes:
    """What stands before the `length` bytes of a field: tag and length."""
    return varint(number << 3 | BYTES) + varint(length)
