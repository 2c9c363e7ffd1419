"""How the walk over weights sees the schema, and what it puts in the place of a blob's numbers.

A WireBlob holds the numbers; the BlobProto that stays in the small message holds a token, the WireBlob's
index, as the one value of its double_diff.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from ..errors import ProtoError
from .caffe_pb2 import BlobProto
from .descriptors import REPEATED, REQUIRED, labels
from .wire_format import BYTES, FIXED32, FIXED64, VARINT

WIDTHS = {FIXED32: 4, FIXED64: 8}
_WIRE_TYPES = {
    FieldDescriptor.TYPE_FLOAT: FIXED32,
    FieldDescriptor.TYPE_FIXED32: FIXED32,
    FieldDescriptor.TYPE_SFIXED32: FIXED32,
    FieldDescriptor.TYPE_DOUBLE: FIXED64,
    FieldDescriptor.TYPE_FIXED64: FIXED64,
    FieldDescriptor.TYPE_SFIXED64: FIXED64,
    FieldDescriptor.TYPE_STRING: BYTES,
    FieldDescriptor.TYPE_BYTES: BYTES,
    FieldDescriptor.TYPE_MESSAGE: BYTES,
}


class Field:
    """One field: its wire type, and what the walk does with it.

    table: of a message field. holds_blobs: there are BlobProtos in it. array: numbers that are taken out.
    """

    __slots__ = ("name", "wire", "repeated", "table", "holds_blobs", "array", "is_text")

    def __init__(self, field: FieldDescriptor, owner: str, label: int):
        self.name = field.name
        self.wire = _WIRE_TYPES.get(field.type, VARINT)
        self.repeated = label == REPEATED
        self.table = table_of(field.message_type) if field.message_type else None
        self.holds_blobs = self.table is not None and (self.table.is_blob or self.table.holds_blobs)
        self.array = owner == "caffe.BlobProto" and self.wire in WIDTHS
        self.is_text = field.type == FieldDescriptor.TYPE_STRING

    def fits(self, wire: int) -> bool:
        """Whether a value of this wire type can be one of this field's; lists may be packed or not."""
        return wire == self.wire or (self.repeated and wire == BYTES)


class Table(dict[int, Field]):
    """The fields of a message type by number."""

    def __init__(self, descriptor: Descriptor):
        label_of = labels(descriptor)
        super().__init__(
            (f.number, Field(f, descriptor.full_name, label_of[f.name])) for f in descriptor.fields
        )
        self.name = descriptor.name
        self.is_blob = descriptor.full_name == "caffe.BlobProto"
        self.holds_blobs = any(field.holds_blobs for field in self.values())
        self.required = {f.number for f in descriptor.fields if label_of[f.name] == REQUIRED}


table_of = functools.cache(Table)


@dataclass(slots=True)
class WireBlob:
    """The numbers of one BlobProto, flat: float32 or float64, None where there are none.

    Arrays from a reader are read-only, need not be aligned, and may be views of the mapped file: copy
    what is to outlive the file's present content.
    """

    data: np.ndarray | None = None
    diff: np.ndarray | None = None


def blob_index(proto: BlobProto) -> int:
    """The token of a BlobProto: the index of its WireBlob. Raises ProtoError if it has none."""
    if len(proto.double_diff) != 1 or not proto.double_diff[0].is_integer():
        raise ProtoError("this BlobProto has no token: it came from no reader of caffe.wire")
    return int(proto.double_diff[0])


def set_blob_index(proto: BlobProto, index: int) -> None:
    """Give a BlobProto its token: its numbers are those of blobs[index] when it is written."""
    proto.double_diff[:] = [index]
