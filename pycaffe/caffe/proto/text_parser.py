"""Protobuf's text format, read into a message with errors that show the place.

    parse(text, message, path)     fill an empty message, or raise ParseError

Accepts what the C++ parser behind the original accepts, and refuses what it refuses, in its words. It
is written anew because protobuf's own Python parser recurses, is slow on large nets, and tells of a
fault no more than its line and column. One addition: `ceil_mode`, a field that several forks gave to
PoolingParameter, is read as the round_mode that it stands for.

    field    = NAME [":"] block | NAME ":" value | NAME [":"] "[" value, value ... "]"      then [";" | ","]
    block    = "{" field* "}" | "<" field* ">"
    value    = block | number | string string* | identifier
    comments run from # to the end of the line
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from . import hints
from .descriptors import REPEATED, REQUIRED, labels
from .text_tokens import END, NAME, SYMBOL, Tokens, read_bool, reader

_CLOSING = {"{": "}", "<": ">"}


class _Field:
    """How to read one field. `read` takes the value at the current token; None for messages."""

    __slots__ = ("name", "repeated", "read")

    def __init__(self, descriptor: FieldDescriptor, label: int, read: Callable[[Tokens], Any] | None = None):
        self.name = descriptor.name
        self.repeated = label == REPEATED
        self.read = read or (None if descriptor.message_type else reader(descriptor))


class _Table(dict[str, _Field]):
    """The fields of a message type by name, and which of them are required."""

    def __init__(self, descriptor: Descriptor):
        label_of = labels(descriptor)
        super().__init__((f.name, _Field(f, label_of[f.name])) for f in descriptor.fields)
        self.descriptor = descriptor
        self.required = [name for name, label in label_of.items() if label == REQUIRED]
        if descriptor.full_name == "caffe.PoolingParameter":
            modes = descriptor.enum_types_by_name["RoundMode"].values_by_name
            floor, ceil = modes["FLOOR"].number, modes["CEIL"].number
            self["ceil_mode"] = _Field(
                descriptor.fields_by_name["round_mode"],
                label_of["round_mode"],
                lambda tokens: ceil if read_bool(tokens, "ceil_mode") else floor,
            )


_table = functools.cache(_Table)


class _Frame:
    """A block that is being read.

    closing: the symbol that ends it. listed: its field, if it is an element of a [list]. label: "layer[3]".
    at: its offset in the text.
    """

    __slots__ = ("message", "table", "closing", "listed", "label", "at")

    def __init__(
        self, message: Message, closing: str = "", listed: _Field | None = None, label: str = "", at: int = 0
    ):
        self.message, self.table = message, _table(message.DESCRIPTOR)
        self.closing, self.listed, self.label, self.at = closing, listed, label, at


def parse(text: str, message: Message, path: str = "") -> None:
    """Fill `message`, which must be empty, from `text`. Raises ParseError, which names `path`.

    Time and memory grow with the length of the text only; open blocks are kept on a list, not on the
    interpreter's stack.
    """
    tokens = Tokens(text.removeprefix("\ufeff"), path)
    stack = [_Frame(message)]
    while True:
        frame = stack[-1]
        if tokens.kind == NAME:
            _read_field(tokens, stack)
        elif tokens.kind == SYMBOL and tokens.text == frame.closing:
            tokens.advance()
            _check_required(tokens, stack)
            stack.pop()
            if frame.listed and not tokens.take("]"):
                tokens.require(",")
                _open(tokens, stack, frame.listed, tokens.at, in_list=True)
            else:
                _separator(tokens)
        elif tokens.kind == END and len(stack) == 1:
            _check_required(tokens, stack)
            return
        else:
            tokens.expected("identifier", _block_hint(tokens, stack))


def _read_field(tokens: Tokens, stack: list[_Frame]) -> None:
    """The field at the current name: a scalar is set, a block is opened as the new last frame."""
    frame, at, written = stack[-1], tokens.at, tokens.text
    message, field = frame.message, frame.table.get(written)
    if field is None:
        tokens.fail(
            f'Message type "{frame.table.descriptor.full_name}" has no field named "{tokens.shown()}".',
            hints.unknown_field(tokens.shown(), [f.table.descriptor for f in stack]),
        )
    if not field.repeated and message.HasField(field.name):
        tokens.fail(
            f'Non-repeated field "{field.name}" is specified multiple times.',
            "ceil_mode is some forks' way to write it." if field.name == "round_mode" else "",
        )
    tokens.advance()
    if field.read is None:
        tokens.take(":")
        in_list = field.repeated and tokens.take("[")
        if not (in_list and tokens.take("]")):
            _open(tokens, stack, field, tokens.at if in_list else at, in_list)
            return
    else:
        tokens.require(":")
        if not field.repeated:
            setattr(message, field.name, field.read(tokens))
        elif not tokens.take("["):
            getattr(message, field.name).append(field.read(tokens))
        elif not tokens.take("]"):
            values = getattr(message, field.name)
            values.append(field.read(tokens))
            while not tokens.take("]"):
                tokens.require(",")
                values.append(field.read(tokens))
    _separator(tokens)


def _separator(tokens: Tokens) -> None:
    if tokens.kind == SYMBOL and tokens.text in ";,":
        tokens.advance()


def _open(tokens: Tokens, stack: list[_Frame], field: _Field, at: int, in_list: bool) -> None:
    """Step over an opening brace and push the frame of a new element of `field`."""
    if tokens.kind != SYMBOL or tokens.text not in _CLOSING:
        tokens.expected('"{"')
    parent = stack[-1].message
    if field.repeated:
        values = getattr(parent, field.name)
        label, message = f"{field.name}[{len(values)}]", values.add()
    else:
        label, message = field.name, getattr(parent, field.name)
        message.SetInParent()
    stack.append(_Frame(message, _CLOSING[tokens.text], field if in_list else None, label, at))
    tokens.advance()


def _check_required(tokens: Tokens, stack: list[_Frame]) -> None:
    frame = stack[-1]
    missing = [name for name in frame.table.required if not frame.message.HasField(name)]
    if missing:
        place = "".join(f"{f.label}." for f in stack[1:])
        names = ", ".join(f"{place}{name}" for name in missing)
        tokens.fail(f"Message missing required fields: {names}", at=frame.at)


def _block_hint(tokens: Tokens, stack: list[_Frame]) -> str:
    """After something that is no field and does not close the innermost block."""
    frame = stack[-1]
    block = f"The block {frame.label}, opened in line {tokens.line(frame.at)}, is"
    if tokens.kind == END:
        return f"{block} not closed."
    if tokens.text not in ("}", ">"):
        return ""
    if len(stack) == 1:
        return "No block is open here: there is one closing brace too many, here or above."
    return f"{block} closed with '{frame.closing}'."
