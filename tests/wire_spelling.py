"""An encoder that spells one message in many ways, and what caffe.wire has to make of any of them.

Written from the description of the wire format alone: packed and single values mixed, tags and lengths
longer than they need be, unknown fields of every wire type in between. protobuf itself is the judge of
the spelling: it must read the same message back.
"""

from __future__ import annotations

import struct

import numpy as np
from google.protobuf.descriptor import FieldDescriptor as FD
from google.protobuf.message import Message
from hypothesis import strategies as st

from caffe.proto import caffe_pb2 as pb
from caffe.wire import WireBlob

FIXED = {FD.TYPE_FLOAT: ("<f", 5), FD.TYPE_DOUBLE: ("<d", 1)}


def varint(value: int, padding: int = 0) -> bytes:
    value &= 2**64 - 1
    groups = [value & 127]
    while value := value >> 7:
        groups.append(value & 127)
    groups += [0] * padding
    return bytes(g | 128 for g in groups[:-1]) + bytes(groups[-1:])


class Speller:
    """`draw` decides on each spelling; `unknown`: whether fields that the schema lacks are mixed in."""

    def __init__(self, draw: st.DrawFn, unknown: bool):
        self.draw, self.unknown = draw, unknown

    def message(self, message: Message) -> bytes:
        pieces = []
        for field, value in message.ListFields():
            values = list(value) if _is_repeated(value) else [value]
            pieces.append(self.stranger())
            pieces.append(self.field(field, values, _is_repeated(value)))
        return b"".join([*pieces, self.stranger()])

    def tag(self, number: int, wire: int) -> bytes:
        plain = varint(number << 3 | wire)
        return varint(number << 3 | wire, self.draw(st.sampled_from([0, 0, 0, 1])) if len(plain) < 5 else 0)

    def sized(self, number: int, content: bytes) -> bytes:
        return self.tag(number, 2) + varint(len(content), self.draw(st.sampled_from([0, 0, 2]))) + content

    def field(self, field: FD, values: list, repeated: bool) -> bytes:
        if field.message_type:
            return b"".join(self.sized(field.number, self.message(v)) for v in values)
        if field.type in (FD.TYPE_STRING, FD.TYPE_BYTES):
            raw = [v.encode() if isinstance(v, str) else v for v in values]
            return b"".join(self.sized(field.number, v) for v in raw)
        form, wire = FIXED.get(field.type, ("", 0))
        coded = [struct.pack(form, v) if form else varint(int(v)) for v in values]
        if not repeated:
            return self.tag(field.number, wire) + coded[0]
        result, at = b"", 0
        while at < len(coded):
            count = self.draw(st.integers(1, len(coded) - at))
            if self.draw(st.booleans()):
                result += self.sized(field.number, b"".join(coded[at : at + count]))
            else:
                result += b"".join(self.tag(field.number, wire) + c for c in coded[at : at + count])
            result += self.stranger()
            at += count
        return result

    def stranger(self) -> bytes:
        """Nothing, or a field of a number that no message of the schema has."""
        if not self.unknown or self.draw(st.booleans()):
            return b""
        number = self.draw(st.integers(2000, 2**29 - 1))
        wire = self.draw(st.sampled_from([0, 1, 2, 3, 5]))
        if wire == 0:
            return self.tag(number, 0) + varint(self.draw(st.integers(0, 2**64 - 1)))
        if wire == 2:
            return self.sized(number, self.draw(st.binary(max_size=5)))
        if wire == 3:
            inner = self.tag(7, 0) + b"\x05" + self.tag(8, 3) + self.tag(8, 4)
            return self.tag(number, 3) + inner + self.tag(number, 4)
        return self.tag(number, wire) + bytes(4 if wire == 5 else 8)


def _is_repeated(value: object) -> bool:
    return hasattr(value, "extend")


def small_form(message: Message) -> tuple[Message, list[WireBlob]]:
    """What a reader must return for this message: each BlobProto's numbers by a token, in file order."""
    result = type(message)()
    result.CopyFrom(message)
    blobs: list[WireBlob] = []

    def visit(part: Message) -> None:
        if isinstance(part, pb.BlobProto):
            data = _array(part.double_data, np.float64)
            diff = _array(part.double_diff, np.float64)
            blobs.append(
                WireBlob(
                    _array(part.data, np.float32) if data is None else data,
                    _array(part.diff, np.float32) if diff is None else diff,
                )
            )
            for name in ("data", "diff", "double_data"):
                part.ClearField(name)
            part.double_diff[:] = [len(blobs) - 1]
            return
        for field, value in part.ListFields():
            if field.message_type:
                for inner in value if _is_repeated(value) else [value]:
                    visit(inner)

    visit(result)
    return result, blobs


def _array(values: object, dtype: type) -> np.ndarray | None:
    array = np.array(values, dtype)
    return array if array.size else None


def assert_same_blobs(found: list[WireBlob], expected: list[WireBlob]) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        for a, b in ((ours.data, theirs.data), (ours.diff, theirs.diff)):
            if a is None or b is None:
                assert a is b
            else:
                assert a.dtype == b.dtype and a.ndim == 1 and not a.flags.writeable
                np.testing.assert_array_equal(a, b)
