"""Reading: a walk through the bytes of a message that takes out the numbers of its blobs."""

from __future__ import annotations

import struct

import numpy as np

from . import wire_format
from .caffe_pb2 import BlobProto
from .wire_blobs import WIDTHS, Field, Table, WireBlob
from .wire_format import BYTES, VARINT, Span, Walker

_SMALL = 4096  # bytes; smaller pieces of an array are gathered by copying
_TOKEN = struct.Struct("<d")
_DOUBLE_DIFF = BlobProto.DOUBLE_DIFF_FIELD_NUMBER


class _Array:
    """The numbers of one array field, gathered from the pieces in which a file has them."""

    def __init__(self, field: Field):
        self.name, self.width = field.name, WIDTHS[field.wire]
        self.pieces: list[memoryview | bytearray] = []

    def add(self, piece: memoryview) -> None:
        if len(piece) >= _SMALL:
            self.pieces.append(piece)
        elif self.pieces and isinstance(self.pieces[-1], bytearray):
            self.pieces[-1] += piece
        else:
            self.pieces.append(bytearray(piece))

    def joined(self) -> np.ndarray | None:
        arrays = [np.frombuffer(piece, f"<f{self.width}") for piece in self.pieces if piece]
        if not arrays:
            return None
        result = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        result.flags.writeable = False
        return result


class Reader(Walker):
    """One walk through a file. blobs: in the order met. passed_over: message -> field numbers."""

    def __init__(self, view: memoryview, name: str):
        super().__init__(view, name)
        self.blobs: list[WireBlob] = []
        self.passed_over: dict[str, set[int]] = {}

    def message(self, table: Table, start: int, end: int, root: bool = False) -> bytearray | None:
        """The message in [start, end) without its blobs' numbers and without unknown fields.

        Blobs, what holds them, and the outermost message must have the schema's wire types. Elsewhere a
        value of another type is that of a fork's field with the same number, and passed over; likewise a
        message without its required fields, for which the result is None.
        """
        out, seen = bytearray(), set[int]()
        arrays: dict[str, _Array] = {}
        copied = at = start  # [copied, at): fields to be copied as they are
        while at < end:
            span = self.field(at, end)
            field = table.get(span.number)
            instead: bytes | bytearray | None = b""
            if field is None or not field.fits(span.wire):
                if field is not None and (root or table.is_blob or field.holds_blobs):
                    self.fail(
                        at, f"{table.name}'s field {field.name} ({span.number}) has wire type {span.wire}"
                    )
                self._pass_over(table, span.number)
            else:
                seen.add(span.number)
                if field.array:
                    span = self._numbers(arrays.setdefault(field.name, _Array(field)), span, end)
                else:
                    instead = self._instead(table, field, span)
            if instead is not None:
                out += self.view[copied:at]
                out += instead
                copied = span.next
            at = span.next
        out += self.view[copied:end]
        if root and not seen:
            self.fail(start, f"there is no field of {table.name}")
        if table.is_blob:
            out += self._finish_blob(arrays)
        return out if table.required <= seen else None

    def _instead(self, table: Table, field: Field, span: Span) -> bytes | bytearray | None:
        """What stands for a known field in the small message; None: the field as it is."""
        if field.table is not None:
            part = self.message(field.table, span.start, span.stop)
            if part is not None:
                return wire_format.head(span.number, len(part)) + part
            self._pass_over(table, span.number)
            return b""
        if field.is_text:
            value = bytes(self.view[span.start : span.stop])
            text = value.decode("utf-8", "backslashreplace").encode()  # a Python string holds UTF-8 only
            return None if text == value else wire_format.head(span.number, len(text)) + text
        if span.wire == BYTES and field.wire in WIDTHS:
            self._check_width(field.name, span, WIDTHS[field.wire])
        elif span.wire == BYTES and field.wire == VARINT:
            at = span.start
            while at < span.stop:
                at = self.varint(at, span.stop)[1]
        return None

    def _numbers(self, array: _Array, span: Span, end: int) -> Span:
        """Take an array's numbers: a packed piece, or a run of single ones. Returns the last span taken."""
        if span.wire == BYTES:
            self._check_width(array.name, span, array.width)
            array.add(self.view[span.start : span.stop])
            return span
        count, stride = self._run(span, end), span.next - span.at
        if count == 1:
            array.add(self.view[span.start : span.stop])
            return span
        run = self.view[span.at : span.at + count * stride]
        values = np.frombuffer(run, np.uint8).reshape(count, stride)[:, span.start - span.at :]
        array.add(np.ascontiguousarray(values).reshape(-1).data)
        return span._replace(next=span.at + count * stride)

    def _run(self, span: Span, end: int) -> int:
        """How many fields with this tag follow each other, from span on."""
        stride, tag = span.next - span.at, self.view[span.at : span.start]
        most, count, step = (end - span.at) // stride, 1, 16
        if self.view[span.next : span.next + len(tag)] != tag:
            return 1
        while count < most:
            step = min(step * 4, most - count)
            start = span.at + count * stride
            block = np.frombuffer(self.view[start : start + step * stride], np.uint8).reshape(step, stride)
            same = (block[:, : len(tag)] == np.frombuffer(tag, np.uint8)).all(axis=1)
            if not same.all():
                return count + int(same.argmin())
            count += step
        return count

    def _check_width(self, name: str, span: Span, width: int) -> None:
        if (span.stop - span.start) % width:
            self.fail(
                span.at, f"{name} has {span.stop - span.start} bytes, which are no whole number of values"
            )

    def _finish_blob(self, arrays: dict[str, _Array]) -> bytes:
        """File a blob's arrays; returns its token. Doubles win over floats, as in the original."""
        found = {name: array.joined() for name, array in arrays.items()}
        data, diff = found.get("double_data"), found.get("double_diff")
        self.blobs.append(
            WireBlob(found.get("data") if data is None else data, found.get("diff") if diff is None else diff)
        )
        return wire_format.head(_DOUBLE_DIFF, _TOKEN.size) + _TOKEN.pack(len(self.blobs) - 1)

    def _pass_over(self, table: Table, number: int) -> None:
        self.passed_over.setdefault(table.name, set()).add(number)
