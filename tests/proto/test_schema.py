"""proto/caffe.proto against the schema of the original, item by item and both ways.

The description in golden/caffe_schema.json was taken from the original's compiled descriptors.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from caffe.proto import caffe_pb2

SCHEMA = json.loads((Path(__file__).parents[1] / "golden" / "caffe_schema.json").read_text())


def _file() -> descriptor_pb2.FileDescriptorProto:
    result = descriptor_pb2.FileDescriptorProto()
    caffe_pb2.DESCRIPTOR.CopyToProto(result)
    return result


def _enum(enum: descriptor_pb2.EnumDescriptorProto) -> dict[str, int]:
    return {value.name: value.number for value in enum.value}


def _field(field: FieldDescriptorProto) -> dict[str, object]:
    """One field in the words of the JSON file."""
    kind = field.type_name.lstrip(".") or FieldDescriptorProto.Type.Name(field.type).split("_", 1)[1].lower()
    result: dict[str, object] = {
        "number": field.number,
        "label": FieldDescriptorProto.Label.Name(field.label).split("_", 1)[1].lower(),
        "type": kind,
    }
    if field.HasField("default_value"):
        result["default"] = _default(kind, field.default_value)
    if field.options.packed:
        result["packed"] = True
    return result


def _default(kind: str, text: str) -> object:
    """Numbers as numbers: runtimes write a float's default out with more or fewer digits."""
    return np.float32(text) if kind == "float" else text


def _expected(field: dict[str, object]) -> dict[str, object]:
    if "default" in field:
        return field | {"default": _default(str(field["type"]), str(field["default"]))}
    return field


def _ours() -> dict[str, descriptor_pb2.DescriptorProto]:
    return {message.name: message for message in _file().message_type}


def test_file_is_proto2_of_package_caffe() -> None:
    file = _file()
    assert file.package == SCHEMA["package"] == "caffe"
    assert file.syntax in ("", "proto2") and SCHEMA["syntax"] == "proto2"
    assert not file.dependency and not file.extension and not file.service
    assert {enum.name: _enum(enum) for enum in file.enum_type} == SCHEMA["enums"]


def test_same_messages() -> None:
    assert set(_ours()) == set(SCHEMA["messages"])


@pytest.mark.parametrize("name", sorted(SCHEMA["messages"]))
def test_message(name: str) -> None:
    ours, theirs = _ours()[name], SCHEMA["messages"][name]
    assert set(theirs) <= {"fields", "enums"}
    assert {field.name: _field(field) for field in ours.field} == {
        name: _expected(field) for name, field in theirs["fields"].items()
    }
    assert {enum.name: _enum(enum) for enum in ours.enum_type} == theirs.get("enums", {})
    assert not ours.nested_type and not ours.oneof_decl and not ours.extension_range


def test_defaults_as_python_sees_them() -> None:
    """The text of a default in a descriptor is not yet the value that a user gets."""
    assert caffe_pb2.SolverParameter().solver_mode == caffe_pb2.SolverParameter.GPU
    assert caffe_pb2.SolverParameter().delta == np.float32(1e-8)
    assert caffe_pb2.FillerParameter().type == "constant"
    assert caffe_pb2.ConvolutionParameter().bias_term is True
    assert caffe_pb2.ReductionParameter().operation == 1
    assert caffe_pb2.DataParameter().prefetch == 4
    assert caffe_pb2.NetState().phase == caffe_pb2.TEST
