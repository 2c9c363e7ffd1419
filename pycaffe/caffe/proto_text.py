"""Prototxt files: reading, writing, and where each layer stands.

    read_net(path)              a NetParameter of any format (V0, V1, current), not yet upgraded
    read_solver(path)           a SolverParameter, not yet upgraded
    parse_text(text, cls)       any message of caffe_pb2 from a string
    write_text(message)         the string again;  write(message, path) into a file
    layer_lines(text)           line and name of each layer, for errors that come later
    read_binary(path, cls)      a small binary message (for weights, mean files, states: caffe.wire)

Faults in the text are ParseErrors that show file, line, column and the line itself; files that cannot be
read, or that are something else than they should be, are ProtoErrors that say what they look like.
"""

from __future__ import annotations

import os
import re
import stat
from typing import BinaryIO, TypeVar

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message

from .atomic_file import atomic_write
from .errors import ParseError, ProtoError, WireError
from .proto import text_parser, text_tokens
from .proto.caffe_pb2 import NetParameter, SolverParameter

FilePath = str | os.PathLike[str]
M = TypeVar("M", bound=Message)

_WHAT = {"NetParameter": "net", "SolverParameter": "solver"}
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")
_HEAD = 1024  # bytes that show whether a file is text
_LIMIT = 2**31 - 1  # bytes in one message, a limit of protobuf's
_PIECE = 1 << 24  # bytes read at a time


def read_net(path: FilePath) -> NetParameter:
    """The net in a prototxt, as written: upgrade_proto brings it to the current format.

    Raises ParseError for faults in the text, ProtoError for a file that cannot be read, that is empty,
    or that has both `layer` and `layers`.
    """
    net = _read(path, NetParameter)
    if net.layer and net.layers:
        raise ProtoError(
            f"{os.fspath(path)}: Refusing to upgrade inconsistent NetParameter input; the "
            "definition includes both 'layer' and 'layers' fields. The current format is "
            'layer { type: "Pooling" }, the old one layers { type: POOLING }: write all layers in the first.'
        )
    return net


def read_solver(path: FilePath) -> SolverParameter:
    """The solver in a prototxt, as written. Raises ParseError and ProtoError as read_net does."""
    return _read(path, SolverParameter)


def _read(path: FilePath, cls: type[M]) -> M:
    text = read_text(path)
    message = parse_text(text, cls, os.fspath(path))
    if not message.ListFields():
        what = _WHAT[cls.DESCRIPTOR.name]
        raise ParseError(f"{os.fspath(path)}: the file is empty: there is no {what} in it", os.fspath(path))
    return message


def parse_text(text: str, cls: type[M], path: str = "") -> M:
    """A message from its text. `path` is what errors call the text. An empty text gives an empty message.

    Raises ParseError.
    """
    message = cls()
    text_parser.parse(text, message, path)
    return message


def write_text(message: Message) -> str:
    """The message as prototxt, one field to a line; parse_text gives it back equal."""
    return text_format.MessageToString(message)


def write(message: Message, path: FilePath) -> None:
    """Write the message into a prototxt file, whole or not at all. Raises ProtoError if it cannot be."""
    try:
        with atomic_write(os.fspath(path)) as file:
            file.write(write_text(message).encode())
    except OSError as error:
        raise ProtoError(f"{os.fspath(path)}: cannot be written: {error.strerror}") from error


def layer_lines(text: str) -> list[tuple[int, str]]:
    """Line (from 1) and name of each `layer { }` or `layers { }` of a net's text, in their order.

    For text that parse_text accepts. A layer without a name has "".
    """
    result: list[tuple[int, str]] = []
    tokens = text_tokens.Tokens(text.removeprefix("\ufeff"))
    names = [""]  # of the last field at each depth
    line, counted = 1, 0
    while tokens.kind != text_tokens.END:
        if tokens.kind == text_tokens.NAME:
            names[-1] = tokens.text
        elif tokens.kind == text_tokens.STRING:
            # V0 has the name one block further in: layers { layer { name: "conv1" } }.
            if names[-1] == "name" and names[:-1] in (["layer"], ["layers"], ["layers", "layer"]):
                result[-1] = (result[-1][0], tokens.text[1:-1])
        elif tokens.text in ("{", "<"):
            if len(names) == 1 and names[0] in ("layer", "layers"):
                line += text.count("\n", counted, tokens.at)
                counted = tokens.at
                result.append((line, ""))
            names.append("")
        elif tokens.text in ("}", ">") and len(names) > 1:
            names.pop()
        tokens.advance()
    return result


def read_text(path: FilePath) -> str:
    """A text file as str. Bytes that are no UTF-8 become surrogates: comments may hold what they like.

    Raises ProtoError, which says what the file looks like if it is no text.
    """
    data = _read_bytes(path)
    name = os.fspath(path)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ParseError(f"{name}: the file is UTF-16: save it as UTF-8", name)
    if data.startswith(b"\x89HDF"):
        raise ParseError(f"{name}: this is an HDF5 file where a prototxt is wanted. {_BINARIES}", name)
    if not looks_like_text(data[:_HEAD]):
        raise ParseError(f"{name}: the file is binary where a prototxt (text) is wanted. {_BINARIES}", name)
    return data.decode("utf-8", "surrogateescape")


_BINARIES = "Weights go to -weights or to caffe.Net(model, weights, phase), a .solverstate to -snapshot."


def looks_like_text(head: bytes) -> bool:
    """Whether a file that begins like this may be a prototxt."""
    return not _CONTROL.search(head.rstrip(b"\x1a"))  # Ctrl-Z once ended text files


def read_binary(path: FilePath, cls: type[M]) -> M:
    """A binary message as a whole. Slow and limited to 2 GB where it holds weights: see caffe.wire.

    Raises WireError for bytes that are no such message, ProtoError for a file that cannot be read.
    """
    data, name = _read_bytes(path), os.fspath(path)
    kind = cls.DESCRIPTOR.full_name
    try:
        message = cls.FromString(data)
    except DecodeError as error:
        text = "; the file looks like text (a prototxt)" if looks_like_text(data[:_HEAD]) else ""
        raise WireError(f"{name}: {len(data)} bytes that are no {kind}: {error}{text}") from error
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())  # pyright: ignore[reportAttributeAccessIssue]
        raise WireError(f"{name}: Message missing required fields: {missing}")
    return message


def _read_bytes(path: FilePath) -> bytes:
    try:
        with open(path, "rb") as file:
            return read_whole(file)
    except (OSError, ValueError) as error:
        raise file_error(path, error) from error


def read_whole(file: BinaryIO) -> bytes:
    """All of an open file, be it a pipe, if it is not larger than a message may be. Raises ProtoError."""
    status = os.fstat(file.fileno())
    size = status.st_size if stat.S_ISREG(status.st_mode) else 0  # 0 also for files of /proc
    data = bytearray()
    while size <= _LIMIT and len(data) <= _LIMIT:
        piece = file.read(_PIECE)
        if not piece:
            return bytes(data)
        data += piece
    raise ProtoError(f"{file.name}: more bytes than protobuf's limit of {_LIMIT}")


def file_error(path: FilePath, error: OSError | ValueError) -> ProtoError:
    """What went wrong with opening a file, in a sentence."""
    name = os.fspath(path)
    if "\n" in name or "{" in name:
        return ProtoError(
            f"File not found: {name[:60]!r}...: a prototxt's text where a file's path is wanted"
        )
    if isinstance(error, FileNotFoundError):
        where = "" if os.path.isabs(name) else f" (looked in {os.getcwd()})"
        return ProtoError(f"File not found: {name}{where}")
    if isinstance(error, IsADirectoryError):
        return ProtoError(f"{name}: this is a directory where a file is wanted")
    return ProtoError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}")
