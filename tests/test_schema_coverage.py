"""Every field of every layer's parameters acts in some case, or is refused in some test.

A field counts as covered when a recorded prototxt sets it, or when a test builds a layer or a message with
it. Old formats (V0, V1) are covered by the upgrade cases.
"""

from __future__ import annotations

import re
from pathlib import Path

from google.protobuf import text_format
from google.protobuf.message import Message

from caffe.proto import caffe_pb2

TESTS = Path(__file__).parent
# Messages that are no layer's parameters have tests of their own.
PARAMS = {
    f.message_type.name: f.message_type
    for f in caffe_pb2.LayerParameter.DESCRIPTOR.fields
    if f.message_type is not None and f.name.endswith("_param")
} | {"FillerParameter": caffe_pb2.FillerParameter.DESCRIPTOR, "ParamSpec": caffe_pb2.ParamSpec.DESCRIPTOR}

# Set by tests in a way that the search below does not see: (file, text that sets it).
ELSEWHERE = {
    ("DataParameter", "force_encoded_color"): (
        "layer_types/test_data.py",
        "force_encoded_color: true",
    ),
    ("FillerParameter", "variance_norm"): ("test_fillers.py", "variance_norm: {norm}"),
    ("PythonParameter", "share_in_parallel"): ("layer_types/test_python.py", "share_in_parallel: true"),
    ("RecurrentParameter", "debug_info"): ("layer_types/recurrent.py", '"debug_info: true"'),
}


def set_fields(message: Message) -> set[tuple[str, str]]:
    found = set()
    for field, value in message.ListFields():
        found.add((message.DESCRIPTOR.name, field.name))
        values = value if hasattr(value, "__len__") and not isinstance(value, (str, bytes)) else [value]
        for item in values if not isinstance(value, Message) else [value]:
            if isinstance(item, Message):
                found |= set_fields(item)
    return found


def recorded() -> set[tuple[str, str]]:
    found = set()
    for path in (TESTS / "golden").rglob("*.prototxt"):
        net = caffe_pb2.NetParameter()
        try:
            text_format.Merge(path.read_text(), net)
        except (text_format.ParseError, UnicodeDecodeError):
            continue
        found |= set_fields(net)
    return found


def in_tests() -> set[tuple[str, str]]:
    """Fields that a test sets: `param_name { ... field:` in its text, or Message(field=...)."""
    source = "\n".join(p.read_text() for p in TESTS.rglob("test_*.py"))
    found = set()
    names = {
        f.message_type.name: f.name for f in caffe_pb2.LayerParameter.DESCRIPTOR.fields if f.message_type
    }
    for message, descriptor in PARAMS.items():
        opening = names.get(message, "filler" if message == "FillerParameter" else "param")
        blocks = " ".join(re.findall(rf"{opening}\s*\{{+((?:.|\n){{0,300}})", source))
        calls = " ".join(re.findall(rf"{message}\(([^)]*)\)", source))
        for field in descriptor.fields:
            if re.search(rf"\b{field.name}\"?\s*[:{{]", blocks) or re.search(rf"\b{field.name}=", calls):
                found.add((message, field.name))
    return found


def elsewhere() -> set[tuple[str, str]]:
    return {key for key, (file, text) in ELSEWHERE.items() if text in (TESTS / file).read_text()}


def test_no_field_is_without_a_case() -> None:
    covered = recorded() | in_tests() | elsewhere()
    missing = [
        f"{message}.{field.name}"
        for message, descriptor in PARAMS.items()
        for field in descriptor.fields
        if (message, field.name) not in covered
    ]
    assert not missing, "no case and no refusal covers: " + ", ".join(missing)
