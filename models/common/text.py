"""Prototxt as people write it: a small message on one line, numbers without tails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_WIDTH = 100
_FLOATS = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)


def prototxt(message: Message, heading: str) -> str:
    """heading, each line as a comment, and the message."""
    comments = [f"# {line}".rstrip() for line in heading.splitlines()]
    return "\n".join([*comments, *_lines(message)]) + "\n"


def _lines(message: Message) -> Iterator[str]:
    # A solver begins with its net.
    for field, value in sorted(message.ListFields(), key=lambda pair: pair[0].name != "net"):
        for item in value if _is_repeated(value) else [value]:
            yield from _field_lines(field, item)


def _is_repeated(value: Any) -> bool:
    return hasattr(value, "append") or hasattr(value, "add")


def _field_lines(field: Any, value: Any) -> Iterator[str]:
    if field.message_type is None:
        yield f"{field.name}: {_scalar(field, value)}"
        return
    inner = list(_lines(value))
    line = f"{field.name} {{ {' '.join(inner)} }}"
    # A layer stands open, so that its name begins a line.
    if field.name != "layer" and len(line) <= _WIDTH and _is_simple(value):
        yield line
        return
    yield f"{field.name} {{"
    yield from (f"  {line}" for line in inner)
    yield "}"


def _is_simple(message: Message) -> bool:
    """Whether it reads well on one line: scalars only, or a single field."""
    fields = message.ListFields()
    return len(fields) == 1 or all(field.message_type is None for field, _ in fields)


def _scalar(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return str(value).lower()
    if field.cpp_type in _FLOATS:
        plain = value == 0 or 1e-6 <= abs(value) < 1e9
        return np.format_float_positional(np.float32(value), trim="-") if plain else f"{value:g}"
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
