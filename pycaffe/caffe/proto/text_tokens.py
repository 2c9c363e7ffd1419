"""Tokens of protobuf's text format, and the single values made of them.

Tokens cuts a text and raises ParseErrors that show the place. reader(field) gives the function that reads
one value of a scalar field: range, spelling and words of its faults are those of the C++ parser.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable
from typing import Any, NoReturn

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from ..errors import ParseError
from . import hints

# Possessive quantifiers (*+) keep matching linear on any input.
_TOKEN = re.compile(
    r"""(?:[ \t\n\r\v\f]++|\#[^\n]*+)*+
    (?: ([A-Za-z_][A-Za-z_0-9]*+)
      | (\.?[0-9](?:[eE][+-][0-9]|[A-Za-z_0-9.])*+)
      | ("(?:[^"\\\n]|\\[^\n])*+"|'(?:[^'\\\n]|\\[^\n])*+')
      | ([:;,{}<>\[\]-])
      | (\Z)
      | (.) )""",
    re.VERBOSE,
)
NAME, NUMBER, STRING, SYMBOL, END, OTHER = range(1, 7)

_INTEGER = re.compile(r"0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*")
_DECIMAL = re.compile(r"(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?")
_ESCAPE = re.compile(
    r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([abfnrtv\\?'\"])|(.))"
)
_ESCAPED = dict(zip("abfnrtv\\?'\"", b"\a\b\f\n\r\t\v\\?'\"", strict=True))
_SHOWN = 160  # characters of the faulty line that an error shows


class Tokens:
    """The tokens of a text, one at a time: `kind`, `text` and `at` (offset) of the current one."""

    __slots__ = ("source", "path", "kind", "text", "at", "_end", "_match")

    def __init__(self, source: str, path: str = ""):
        self.source, self.path = source, path
        self._match = _TOKEN.match
        self._end = 0
        self.advance()

    def advance(self) -> None:
        found = self._match(self.source, self._end)
        assert found is not None and found.lastindex is not None  # one of the alternatives always fits
        kind = self.kind = found.lastindex
        self.at, self._end = found.span(kind)
        self.text = found[kind]

    def line(self, at: int) -> int:
        return self.source.count("\n", 0, at) + 1

    def shown(self) -> str:
        """The current token as an error names it."""
        return "end of file" if self.kind == END else self.text[:_SHOWN]

    def fail(self, message: str, hint: str = "", at: int | None = None) -> NoReturn:
        """Raise ParseError for the current token, or for the offset `at`, with the line and a caret."""
        at = self.at if at is None else at
        start = self.source.rfind("\n", 0, at) + 1
        end = self.source.find("\n", at)
        text = self.source[start : end if end >= 0 else None].rstrip("\r")
        column = at - start
        first = max(0, column - _SHOWN // 2) if len(text) > _SHOWN else 0
        shown = text[first : first + _SHOWN]
        caret = "".join("\t" if c == "\t" else " " for c in shown[: column - first]) + "^"
        place = f"{self.path or '<text>'}:{self.line(at)}:{column + 1}"
        lines = [f"{place}: {message}", *([f"    {shown}", f"    {caret}"] if shown else []), hint]
        # Surrogates stand for bytes that are no UTF-8; streams would refuse to print them.
        printable = "\n".join(filter(None, lines)).encode("utf-8", "replace").decode()
        raise ParseError(printable, self.path, self.line(at), column + 1)

    def expected(self, what: str, hint: str = "") -> NoReturn:
        """Raise ParseError because the current token is not `what`."""
        if self.kind == OTHER:
            self._odd_character()
        self.fail(f"Expected {what}, got: {self.shown()}", hint)

    def _odd_character(self) -> NoReturn:
        char = self.text
        if char in "\"'":
            self.fail(
                "String literals cannot cross line boundaries.",
                f"The string that begins here is not closed with {char} on the same line.",
            )
        if "\udc80" <= char <= "\udcff":
            self.fail(f"Byte 0x{ord(char) - 0xDC00:02X} is not UTF-8.", "Save the file as UTF-8.")
        if char < " " or char == "\x7f":
            self.fail(f"Invalid control characters encountered in text: 0x{ord(char):02X}.")
        name = unicodedata.name(char, "")
        self.fail(f"Character {char!r}{f' ({name})' if name else ''} has no place outside of a string.")

    def take(self, symbol: str) -> bool:
        """Step over the current token if it is this symbol."""
        if self.kind == SYMBOL and self.text == symbol:
            self.advance()
            return True
        return False

    def require(self, symbol: str) -> None:
        if not self.take(symbol):
            self.expected(f'"{symbol}"')

    def no_number(self) -> NoReturn:
        """Raise ParseError because the current token begins like a number and is none."""
        octal = self.text.isdecimal() and "A number with a leading zero is octal, of digits from 0 to 7."
        self.fail(f"Invalid number: {self.shown()}", octal or "Need space between number and identifier.")


# ---------------------------------------------------------------- single values

_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def reader(field: FieldDescriptor) -> Callable[[Tokens], Any]:
    """The function that reads a value of this field at the current token, and steps over it."""
    kind = field.cpp_type
    if kind in _RANGES:
        low, high = _RANGES[kind]
        return functools.partial(_read_int, low=low, high=high)
    if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return _read_float
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return functools.partial(read_bool, name=field.name)
    if field.enum_type is not None:
        return functools.partial(_read_enum, enum=field.enum_type, name=field.name)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return functools.partial(_read_bytes, field=field)
    return functools.partial(_read_string, field=field)


def _read_int(tokens: Tokens, low: int, high: int) -> int:
    negative = low < 0 and tokens.take("-")
    text = tokens.text
    if tokens.kind != NUMBER or _DECIMAL.fullmatch(text) and not _INTEGER.fullmatch(text):
        tokens.expected("integer", f"It must lie in [{low}, {high}]." if text == "-" else "")
    if not _INTEGER.fullmatch(text):
        tokens.no_number()
    base = 16 if text[1:2] in ("x", "X") else 8 if text[0] == "0" else 10
    value = int(text, base) if len(text) < 100 else 2**64  # no integer type holds so many digits
    value = -value if negative else value
    if not low <= value <= high:
        tokens.fail(f"Integer out of range ({tokens.shown()}): it must lie in [{low}, {high}].")
    tokens.advance()
    return value


def _read_float(tokens: Tokens) -> float:
    negative = tokens.take("-")
    text = tokens.text
    if tokens.kind == NUMBER:
        if not _DECIMAL.fullmatch(text):
            if _INTEGER.fullmatch(text):
                tokens.fail(f"Expect a decimal number, got: {text}")
            tokens.no_number()
        value = float(text.rstrip("fF"))
    elif tokens.kind == NAME and text.lower() in ("inf", "infinity", "nan"):
        value = float(text)
    else:
        tokens.expected("double")
    tokens.advance()
    return -value if negative else value


def read_bool(tokens: Tokens, name: str) -> bool:
    """The boolean at the current token; `name` is its field's."""
    if tokens.kind == NUMBER:
        return _read_int(tokens, 0, 1) == 1
    if tokens.kind != NAME:
        tokens.expected("identifier", "A boolean is true or false, without quotes.")
    value = tokens.text in ("true", "True", "t")
    if not value and tokens.text not in ("false", "False", "f"):
        message = f'Invalid value for boolean field "{name}". Value: "{tokens.shown()}".'
        tokens.fail(message, "A boolean is true or false.")
    tokens.advance()
    return value


def _read_enum(tokens: Tokens, enum: EnumDescriptor, name: str) -> int:
    at, written = tokens.at, tokens.text
    if tokens.kind == NAME:
        found = enum.values_by_name.get(written)
        tokens.advance()
    elif tokens.kind == NUMBER or written == "-":
        number = _read_int(tokens, -(2**31), 2**31 - 1)
        written = str(number)
        found = enum.values_by_number.get(number)
    else:
        tokens.expected("integer or identifier", hints.no_enum_value(enum, written))
    if found is None:
        tokens.fail(
            f'Unknown enumeration value of "{written}" for field "{name}".',
            hints.unknown_enum_value(enum, written),
            at,
        )
    return found.number


def _read_bytes(tokens: Tokens, field: FieldDescriptor) -> bytes:
    if tokens.kind != STRING:
        tokens.expected("string", hints.no_string(field, tokens.text) if tokens.kind == NAME else "")
    parts = []
    while tokens.kind == STRING:
        parts.append(_unescape(tokens))
        tokens.advance()
    return b"".join(parts)


def _read_string(tokens: Tokens, field: FieldDescriptor) -> str:
    at, text, first = tokens.at, tokens.text, ""
    if tokens.kind == STRING and text.isascii() and "\\" not in text:  # nearly all of them: be quick
        tokens.advance()
        first = text[1:-1]
        if tokens.kind != STRING:
            return first
    try:
        return first + _read_bytes(tokens, field).decode("utf-8")
    except UnicodeDecodeError as error:
        tokens.fail(
            f'String field "{field.name}" contains invalid UTF-8 data: {error.reason}.',
            "Save the file as UTF-8.",
            at,
        )


def _unescape(tokens: Tokens) -> bytes:
    try:
        body = tokens.text[1:-1].encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        tokens.fail(f"String cannot be written as UTF-8: {error.reason}.", at=tokens.at + 1 + error.start)
    if b"\\" not in body:
        return body

    def plain(found: re.Match[str]) -> str:
        octal, hexadecimal, short, long, letter, _ = found.groups()
        if octal or hexadecimal:
            value = int(octal, 8) if octal else int(hexadecimal, 16)
            if value < 256:
                return chr(value)
        elif letter:
            return chr(_ESCAPED[letter])
        elif short or long:
            code = int(short or long, 16)
            if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF:
                return chr(code).encode("utf-8").decode("latin-1")
        before = found.string[: found.start()].encode("latin-1").decode("utf-8", "surrogateescape")
        tokens.fail(
            f"Invalid escape sequence in string literal: {found[0]}",
            r"A backslash itself is written \\ (in paths, too; or use /).",
            tokens.at + 1 + len(before),
        )

    # Latin-1 maps bytes to characters one to one, so that escapes may give any byte.
    return _ESCAPE.sub(plain, body.decode("latin-1")).encode("latin-1")
