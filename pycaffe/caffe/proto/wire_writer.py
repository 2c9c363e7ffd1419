"""Writing: the message that a small one with tokens and its WireBlobs stand for, as pieces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

import numpy as np
from google.protobuf.message import EncodeError, Message

from ..errors import ProtoError
from . import wire_format
from .caffe_pb2 import BlobProto
from .wire_blobs import Table, WireBlob, blob_index, table_of
from .wire_format import BYTES, Walker

Piece = bytes | memoryview | np.ndarray


def lay_out(message: Message, blobs: Sequence[WireBlob]) -> tuple[list[Piece], int]:
    """The file in pieces and its size. Arrays are among the pieces as they are: nothing large is copied."""
    try:
        view = memoryview(message.SerializeToString())
    except EncodeError as error:
        raise ProtoError(str(error)) from error
    return _lay_out_span(Walker(view, "the message"), table_of(message.DESCRIPTOR), 0, len(view), blobs)


def _lay_out_span(
    walker: Walker, table: Table, start: int, end: int, blobs: Sequence[WireBlob]
) -> tuple[list[Piece], int]:
    if table.is_blob:
        return _lay_out_blob(BlobProto.FromString(bytes(walker.view[start:end])), blobs)
    pieces, size = list[Piece](), 0
    copied = at = start
    while at < end:
        span = walker.field(at, end)
        field = table.get(span.number)
        if field is not None and field.table is not None and field.holds_blobs and span.wire == BYTES:
            inner, length = _lay_out_span(walker, field.table, span.start, span.stop, blobs)
            head = wire_format.head(span.number, length)
            pieces += [walker.view[copied:at], head, *inner]
            size += at - copied + len(head) + length
            copied = span.next
        at = span.next
    pieces.append(walker.view[copied:end])
    return pieces, size + end - copied


def _lay_out_blob(proto: BlobProto, blobs: Sequence[WireBlob]) -> tuple[list[Piece], int]:
    """One BlobProto, its fields in the order of their numbers as protobuf writes them."""
    if not proto.double_diff:
        data = proto.SerializeToString()
        return [data], len(data)
    index = blob_index(proto)
    if not 0 <= index < len(blobs):
        raise ProtoError(f"a BlobProto has the token {index}, but there are {len(blobs)} blobs")
    if proto.data or proto.diff or proto.double_data:
        raise ProtoError(f"a BlobProto has both numbers and a token ({index})")
    shape = BlobProto(shape=proto.shape) if proto.HasField("shape") else BlobProto()
    proto.ClearField("shape")
    proto.ClearField("double_diff")
    blob = blobs[index]
    pieces: list[Piece] = [
        proto.SerializeToString(),
        *_packed(5, blob.data, np.float32),
        *_packed(6, blob.diff, np.float32),
        shape.SerializeToString(),
        *_packed(8, blob.data, np.float64),
        *_packed(9, blob.diff, np.float64),
    ]
    return pieces, sum(piece.nbytes if isinstance(piece, np.ndarray) else len(piece) for piece in pieces)


def _packed(number: int, array: np.ndarray | None, kind: type[np.floating[Any]]) -> list[Piece]:
    """The array as field `number` if it is of this kind, else nothing."""
    if array is None or not array.size:
        return []
    if array.dtype not in (np.float32, np.float64):
        raise ProtoError(f"blobs are written from float32 or float64 arrays, not from {array.dtype}")
    return [wire_format.head(number, array.nbytes), array] if array.dtype == kind else []


def write_pieces(file: BinaryIO, pieces: Iterable[Piece]) -> None:
    """Write the pieces one after another, copying at most one array at a time (one that has strides)."""
    for piece in pieces:
        if isinstance(piece, np.ndarray):
            piece = np.ascontiguousarray(piece, f"<f{piece.itemsize}").reshape(-1).view(np.uint8).data
        file.write(piece)
