"""Random messages of the schema, for property tests of whatever reads and writes them."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

_INTS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def _values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.message_type:
        return messages(GetMessageClass(field.message_type))
    if field.enum_type:
        return st.sampled_from([value.number for value in field.enum_type.values])
    if field.cpp_type in _INTS:
        low, high = _INTS[field.cpp_type]
        return st.integers(low, high)
    if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT:
        return st.floats(width=32, allow_nan=False)
    if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
        return st.floats(allow_nan=False)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    return st.binary(max_size=6) if field.type == FieldDescriptor.TYPE_BYTES else st.text(max_size=6)


def _labels(descriptor: Descriptor) -> dict[str, int]:
    proto = DescriptorProto()
    descriptor.CopyToProto(proto)
    return {field.name: field.label for field in proto.field}


@st.composite
def messages(draw: st.DrawFn, cls: type[Message]) -> Message:
    """A message with a few of its fields set, at random, and all required ones."""
    message = cls()
    labels = _labels(cls.DESCRIPTOR)
    optional = [f for f in cls.DESCRIPTOR.fields if labels[f.name] != FieldDescriptorProto.LABEL_REQUIRED]
    chosen = draw(st.lists(st.sampled_from(optional), max_size=4, unique=True)) if optional else []
    for field in cls.DESCRIPTOR.fields:
        if field in optional and field not in chosen:
            continue
        if labels[field.name] == FieldDescriptorProto.LABEL_REPEATED:
            getattr(message, field.name).extend(draw(st.lists(_values(field), min_size=1, max_size=3)))
        elif field.message_type:
            part = getattr(message, field.name)
            part.CopyFrom(draw(_values(field)))
            part.SetInParent()
        else:
            setattr(message, field.name, draw(_values(field)))
    return message
