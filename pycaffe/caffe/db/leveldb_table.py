"""LevelDB's table files (.ldb, .sst): sorted records in compressed blocks.

    file    data blocks, other blocks, index block, footer of 48 bytes
    footer  two handles (offset and size as varints) of the meta index and the index, padding, magic
    block   entries, restart offsets u32, their number u32; after it: compression u8 (0 none, 1 snappy),
            masked CRC-32C of block and compression u32
    entry   bytes shared with the key before, other key bytes, value bytes (varints), key rest, value
    key     the user's key, then sequence number << 8 | kind as u64

The value of an index entry is the handle of a data block, its key is not before any key in it.
Source: leveldb's doc/table_format.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ..errors import DataError
from .crc32c import crc32c, mask
from .files import FileReader
from .leveldb_log import damaged, varint
from .snappy import SnappyError, decompress

_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_FOOTER = 48
_TRAILER = struct.Struct("<BI")
_NUMBER = struct.Struct("<Q")


def read_table(file: FileReader) -> Iterator[tuple[bytes, int, int, bytes]]:
    """(key, sequence number, kind, value) of all entries of a table, in its order."""
    size = file.size
    footer = file.read(max(0, size - _FOOTER), _FOOTER)
    if footer[-8:] != _MAGIC:
        raise damaged(file, "it has no table's footer (is it truncated?)")
    try:
        _, at = _handle(footer, 0)
        index, _ = _handle(footer, at)
    except (IndexError, ValueError) as error:
        raise damaged(file, f"its footer: {error}") from error
    for _, value in _entries(file, _block(file, index, size)):
        try:
            handle, _ = _handle(value, 0)
        except (IndexError, ValueError) as error:
            raise damaged(file, f"its index: {error}") from error
        for key, content in _entries(file, _block(file, handle, size)):
            if len(key) < 8:
                raise damaged(file, f"a key of {len(key)} bytes")
            number = _NUMBER.unpack_from(key, len(key) - 8)[0]
            yield key[:-8], number >> 8, number & 0xFF, content


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    offset, at = varint(data, at)
    size, at = varint(data, at)
    return (offset, size), at


def _block(file: FileReader, handle: tuple[int, int], file_size: int) -> bytes:
    offset, size = handle
    if offset + size + _TRAILER.size > file_size:
        raise damaged(file, f"a block at byte {offset} of {size} bytes in a file of {file_size}")
    data = file.read(offset, size + _TRAILER.size)
    kind, crc = _TRAILER.unpack_from(data, size)
    if crc != mask(crc32c(memoryview(data)[: size + 1])):
        raise damaged(file, f"wrong checksum of the block at byte {offset}")
    if kind == 0:
        return data[:size]
    if kind != 1:
        name = "zstd" if kind == 2 else f"method {kind}"
        raise DataError(f"{file.about}: it is compressed with {name}; only snappy and none are read")
    try:
        return decompress(data[:size])
    except SnappyError as error:
        raise damaged(file, f"the compressed block at byte {offset}: {error}") from error


def _entries(file: FileReader, block: bytes) -> Iterator[tuple[bytes, bytes]]:
    try:
        restarts = int.from_bytes(block[-4:], "little")
        end = len(block) - 4 * (restarts + 1)
        if end < 0 or len(block) < 4:
            raise ValueError(f"{restarts} restarts in {len(block)} bytes")
        key, at = b"", 0
        while at < end:
            shared, at = varint(block, at)
            rest, at = varint(block, at)
            size, at = varint(block, at)
            stop = at + rest + size
            if shared > len(key) or stop > end:
                raise ValueError(f"an entry that ends at byte {stop} of {end}")
            key = key[:shared] + block[at : at + rest]
            yield key, block[at + rest : stop]
            at = stop
    except (IndexError, ValueError) as error:
        raise damaged(file, f"a block's content: {error}") from error
