"""What descriptors tell by different names in the protobuf versions that the project supports."""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

REQUIRED = FieldDescriptorProto.LABEL_REQUIRED
REPEATED = FieldDescriptorProto.LABEL_REPEATED


def labels(descriptor: Descriptor) -> dict[str, int]:
    """The label of each field of a message type, by the field's name, in the order of the schema file."""
    proto = DescriptorProto()
    descriptor.CopyToProto(proto)
    return {field.name: field.label for field in proto.field}
