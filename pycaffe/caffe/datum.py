"""Datum: one record of a database, read from its wire bytes.

A database of one kind of image repeats the same first and last bytes: dimensions before the pixels,
label and flag after them. DatumParser remembers them, so that most records cost two comparisons
instead of a walk through the fields.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .errors import DataError

_MOST_TAILS = 4096


class Datum(NamedTuple):
    """channels, height, width: 0 where an encoded image does not say. label: int32.
    encoded: data is an image file (JPEG, PNG ...). data: the file, or channels x height x width bytes.
    float_data: values instead of data, float32, or None."""

    channels: int
    height: int
    width: int
    label: int
    encoded: bool
    data: memoryview
    float_data: np.ndarray | None


class DatumParser:
    """Reads serialised Datums; fields it does not know are passed over."""

    def __init__(self) -> None:
        # All bytes before the pixels of the last raw record, their shape and number, and for all bytes seen
        # after them the label. One attribute, so that threads see it change at once.
        self._known: tuple[bytes, tuple[int, int, int], int, dict[bytes, int]] = (b"", (0, 0, 0), 0, {})

    @property
    def size(self) -> int:
        """How many bytes of pixels the last raw record had; 0 before one came."""
        return self._known[2]

    def parse(self, value: bytes) -> Datum:
        """Raises DataError when value is no Datum or has not as many pixels as its dimensions say."""
        head, shape, size, tails = self._known
        if size and value.startswith(head):
            start = len(head)
            stop = start + size
            label = tails.get(value[stop:])
            if label is not None and len(value) >= stop:
                return Datum(*shape, label, False, memoryview(value)[start:stop], None)
        try:
            datum, start = _walk(value)
        except (IndexError, ValueError) as error:
            why = "it ends too early" if isinstance(error, IndexError) else error
            raise DataError(f"this is no Datum: {why}") from error
        check(datum)
        if start and not datum.encoded and datum.float_data is None:
            self._remember(value[:start], value[start + len(datum.data) :], datum)
        return datum

    def _remember(self, head: bytes, tail: bytes, datum: Datum) -> None:
        known = self._known
        if head != known[0] or datum[:3] != known[1] or len(known[3]) >= _MOST_TAILS:
            known = self._known = (head, datum[:3], len(datum.data), {})
        known[3][tail] = datum.label

    def images(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """The images (N, C, H, W) in values (N, size), the bytes of N records, and their labels, float32:
        what parse() would give of each of them; the images are a view. None where one of them is not like the
        last raw one that it has read."""
        head, shape, size, tails = self._known
        start = len(head)
        stop = start + size
        if not size or values.shape[1] < stop or (values[:, :start] != np.frombuffer(head, np.uint8)).any():
            return None
        ends = [b""] * len(values)
        if values.shape[1] > stop:
            ends = np.ascontiguousarray(values[:, stop:]).view(f"V{values.shape[1] - stop}")[:, 0].tolist()
        for end in set(ends) - tails.keys():
            try:
                self.parse(values[ends.index(end)].tobytes())
            except DataError:
                return None
            if self._known[3] is not tails or end not in tails:
                return None
        return values[:, start:stop].reshape(-1, *shape), np.array([tails[end] for end in ends], np.float32)


def raw_image(datum: Datum) -> np.ndarray:
    """The image of a datum that is not encoded, (C, H, W), uint8 or float32; a view."""
    shape = (datum.channels, datum.height, datum.width)
    if datum.float_data is not None and not len(datum.data):
        return datum.float_data.reshape(shape)
    return np.frombuffer(datum.data, np.uint8).reshape(shape)


def serialize_floats(images: np.ndarray) -> Iterator[bytes]:
    """A serialised Datum with float_data for each image of (N, C, H, W)."""
    head = b"".join(
        bytes([field << 3]) + _as_varint(size)
        for field, size in zip((1, 2, 3), images.shape[1:], strict=True)
    )
    # Each value is five bytes: the tag of float_data, and a little-endian float.
    rows = np.empty((math.prod(images.shape[1:]), 5), np.uint8)
    rows[:, 0] = 0x35
    for image in images:
        rows[:, 1:] = np.ascontiguousarray(image, "<f4").reshape(-1, 1).view(np.uint8)
        yield head + rows.tobytes()


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def check(datum: Datum) -> None:
    """Raises DataError unless the dimensions and the amount of data agree."""
    if datum.encoded:
        return
    count = datum.channels * datum.height * datum.width
    values = len(datum.data) if len(datum.data) or datum.float_data is None else datum.float_data.size
    size = f"a Datum of {datum.channels} x {datum.height} x {datum.width} (channels x height x width)"
    if min(datum.channels, datum.height, datum.width) < 1:
        but = f" but {values} bytes of data; is it an encoded image without encoded: true?" if values else ""
        raise DataError(f"{size} has no pixels{but}")
    if values != count:
        raise DataError(f"{size} must have {count} values, not {values}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
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


def _int32(value: int) -> int:
    return (value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000


def _walk(value: bytes) -> tuple[Datum, int]:
    """The Datum, and where its data begins (0 when it has none)."""
    numbers = {1: 0, 2: 0, 3: 0, 5: 0, 7: 0}
    begin = end = at = 0
    floats: list[np.ndarray] = []
    size = len(value)
    while at < size:
        tag, at = _varint(value, at)
        field, wire = tag >> 3, tag & 7
        if wire == 0 and field:
            number, at = _varint(value, at)
            if field in numbers:
                numbers[field] = number
        elif wire == 2 and field:
            length, at = _varint(value, at)
            if at + length > size:
                raise ValueError(f"field {field} of {length} bytes at byte {at} of {size}")
            if field == 4:
                begin, end = at, at + length
            elif field == 6:
                if length % 4:
                    raise ValueError(f"{length} bytes of float_data")
                floats.append(np.frombuffer(value, "<f4", length // 4, at))
            at += length
        elif wire == 5 and field == 6:
            run, at = _floats(value, at)
            floats.append(run)
        else:
            at = _pass_over(value, field, wire, at)
    data = memoryview(value)[begin:end]
    float_data = np.concatenate(floats) if floats else None
    channels, height, width, label = (_int32(numbers[i]) for i in (1, 2, 3, 5))
    return Datum(channels, height, width, label, bool(numbers[7]), data, float_data), begin


def _floats(value: bytes, at: int) -> tuple[np.ndarray, int]:
    """A run of single floats, each with its own tag, of which the first starts at `at`."""
    count = (len(value) - at + 1) // 5
    if not count:
        raise IndexError
    rows = np.frombuffer(value, np.uint8, 5 * count, at - 1).reshape(count, 5)
    others = np.flatnonzero(rows[:, 0] != 0x35)
    count = int(others[0]) if others.size else count
    return np.ascontiguousarray(rows[:count, 1:]).view("<f4").ravel(), at - 1 + 5 * count


def _pass_over(value: bytes, field: int, wire: int, at: int) -> int:
    """The place after an unknown field of fixed size or a group, whose tag ends at `at`."""
    groups: list[int] = []
    while True:
        if not field:
            raise ValueError("a field with the number 0")
        if wire == 0:
            _, at = _varint(value, at)
        elif wire == 2:
            length, at = _varint(value, at)
            at += length
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        elif wire == 3:
            groups.append(field)
        elif wire != 4 or not groups or groups.pop() != field:
            raise ValueError(f"field {field} of wire type {wire} out of place")
        if at > len(value):
            raise IndexError
        if not groups:
            return at
        tag, at = _varint(value, at)
        field, wire = tag >> 3, tag & 7
