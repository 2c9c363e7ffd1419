"""Weights and solver states as bytes: the numbers as NumPy arrays, the rest as a small message.

    read_net_binary(source)            -> NetParameter, [WireBlob]        .caffemodel of any format
    read_solver_state(source)          -> SolverState, [WireBlob]         .solverstate
    read_blob(source)                  -> BlobProto, WireBlob             mean files
    read_blob_vector(source)           -> BlobProtoVector, [WireBlob]
    write_net_binary(target, net, blobs), write_solver_state, write_blob, write_blob_vector
    net_binary_size(message, blobs)    bytes that writing gives

protobuf turns every float into a Python object and ends at 2 GB; here a packed array is a view of the
mapped file, and files of any size can be read.

In the small message a BlobProto has its shape but no numbers. Instead its double_diff holds one value,
its *token*: the index of its WireBlob in the list (blob_index, set_blob_index). So whatever moves, copies
or drops BlobProtos afterwards (upgrades do) keeps them and their numbers together. Writing goes the
same way back; a BlobProto without a token is written as it stands.
"""

from __future__ import annotations

import logging
import mmap
import os
import stat
from collections.abc import Sequence
from typing import BinaryIO, TypeVar

from google.protobuf.message import DecodeError, Message

from .atomic_file import atomic_write
from .errors import ProtoError, WireError
from .proto.caffe_pb2 import BlobProto, BlobProtoVector, NetParameter, SolverState
from .proto.wire_blobs import WireBlob as WireBlob
from .proto.wire_blobs import blob_index as blob_index
from .proto.wire_blobs import set_blob_index as set_blob_index
from .proto.wire_blobs import table_of
from .proto.wire_reader import Reader
from .proto.wire_writer import lay_out, write_pieces
from .proto_text import FilePath, file_error, looks_like_text, read_whole

Source = FilePath | bytes | bytearray | memoryview
Target = FilePath | BinaryIO
M = TypeVar("M", bound=Message)

_log = logging.getLogger("caffe")

_LIMIT = 2**31 - 1  # bytes of a message that protobuf reads, in the original and elsewhere
_SHOWN = 20  # field numbers that a log line lists


# ---------------------------------------------------------------- reading


def read_net_binary(source: Source) -> tuple[NetParameter, list[WireBlob]]:
    """A net with weights, of any format (V0, V1, current), not yet upgraded.

    source: a file's path, or its bytes. Fields that the schema lacks (a fork's) are passed over and
    logged. Raises WireError, with the file and the byte, for data that are damaged, truncated or of
    another kind; ProtoError for a file that cannot be read.
    """
    return _read(source, NetParameter)


def read_solver_state(source: Source) -> tuple[SolverState, list[WireBlob]]:
    """A solver state; its history's tokens count from 0. source, raises: as read_net_binary."""
    return _read(source, SolverState)


def read_blob_vector(source: Source) -> tuple[BlobProtoVector, list[WireBlob]]:
    """Several blobs from one file. source, raises: as read_net_binary."""
    return _read(source, BlobProtoVector)


def read_blob(source: Source) -> tuple[BlobProto, WireBlob]:
    """One blob, such as an image mean; the BlobProto tells its shape. source, raises: as read_net_binary."""
    proto, blobs = _read(source, BlobProto)
    return proto, blobs[0]


def _read(source: Source, cls: type[M]) -> tuple[M, list[WireBlob]]:
    view, name = _open(source)
    kind = cls.DESCRIPTOR.name
    if not view:
        raise WireError(f"{name}: the file is empty")
    if view[:4] == b"\x89HDF":
        raise WireError(f"{name}: this is an HDF5 file where a binary {kind} is wanted")
    reader = Reader(view, name)
    try:
        small = reader.message(table_of(cls.DESCRIPTOR), 0, len(view), root=True)
        message = cls.FromString(bytes(small or b""))
    except (WireError, DecodeError) as error:
        text = str(error) if isinstance(error, WireError) else f"{name}: {error}"
        raise WireError(f"{text} (wanted: {kind}){_looks_like(view, cls)}") from error
    if reader.passed_over:
        fields = "; ".join(f"{owner} {_listed(n)}" for owner, n in sorted(reader.passed_over.items()))
        _log.info("%s: passed over fields that are not in the schema, or not as here: %s", name, fields)
    return message, reader.blobs


def _listed(numbers: set[int]) -> str:
    shown = ", ".join(map(str, sorted(numbers)[:_SHOWN]))
    return f"{shown}, ..." if len(numbers) > _SHOWN else shown


def _open(source: Source) -> tuple[memoryview, str]:
    """The bytes, read-only and if possible mapped, and a name for errors."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return memoryview(source).cast("B").toreadonly(), "<bytes>"
    name = os.fspath(source)
    try:
        with open(source, "rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode) and os.fstat(file.fileno()).st_size:
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), name
            return memoryview(read_whole(file)), name
    except (OSError, ValueError) as error:
        raise file_error(source, error) from error


def _looks_like(view: memoryview, cls: type[Message]) -> str:
    """What else a file may be that is no message of this kind."""
    if looks_like_text(bytes(view[:1024])):
        return "; the file looks like text (a prototxt)"
    if view[0] == 0x0A and cls is not NetParameter:
        return "; the file looks like weights (.caffemodel)"
    if view[0] == 0x08 and cls is NetParameter:
        return "; the file looks like a solver state (.solverstate) or a single blob (.binaryproto)"
    return ""


# ---------------------------------------------------------------- writing


def write_net_binary(target: Target, net: NetParameter, blobs: Sequence[WireBlob]) -> None:
    """Write a net with its weights, as pb2 would have serialised it.

    target: a path, written as atomic_file does, or an open (buffered) binary file. blobs:
    what the tokens refer to; float32 arrays are written as data and diff, float64 ones as double_data and
    double_diff, row by row whatever their strides. Raises ProtoError for tokens without a blob, other
    kinds of number, more than 2 GB (before anything is written), and a path that cannot be written.
    """
    _write(target, net, blobs)


def write_solver_state(target: Target, state: SolverState, blobs: Sequence[WireBlob]) -> None:
    """Write a solver state; its history's tokens refer to `blobs`. Otherwise as write_net_binary."""
    _write(target, state, blobs)


def write_blob_vector(target: Target, vector: BlobProtoVector, blobs: Sequence[WireBlob]) -> None:
    """Write several blobs into one file. Otherwise as write_net_binary."""
    _write(target, vector, blobs)


def write_blob(target: Target, proto: BlobProto, blob: WireBlob) -> None:
    """Write one blob of the shape that `proto` tells. Otherwise as write_net_binary."""
    numbered = BlobProto()
    numbered.CopyFrom(proto)
    set_blob_index(numbered, 0)
    _write(target, numbered, [blob])


def net_binary_size(message: Message, blobs: Sequence[WireBlob]) -> int:
    """Bytes that writing this NetParameter, SolverState, ... would give; over 2**31 - 1 it is refused."""
    return lay_out(message, blobs)[1]


def _write(target: Target, message: Message, blobs: Sequence[WireBlob]) -> None:
    pieces, size = lay_out(message, blobs)
    if size > _LIMIT:
        raise ProtoError(
            f"the {message.DESCRIPTOR.name} has {size} bytes, more than protobuf's limit of {_LIMIT}: "
            "write HDF5 instead (snapshot_format: HDF5)"
        )
    if not isinstance(target, (str, os.PathLike)):
        write_pieces(target, pieces)
        return
    try:
        # Never in place: the arrays may be views of this very file.
        with atomic_write(os.fspath(target)) as file:
            write_pieces(file, pieces)
    except OSError as error:
        raise ProtoError(f"{os.fspath(target)}: cannot be written: {error.strerror}") from error
