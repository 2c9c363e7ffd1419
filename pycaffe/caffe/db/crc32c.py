"""CRC-32C (Castagnoli), as LevelDB stores it, over whole arrays at a time.

A CRC without its initial and final inversion is linear over GF(2): each byte contributes a word that
depends on its value and its distance from the end, and the contributions are XORed. So bytes are looked
up in tables per distance: 256 distances within a lane, then 128 lanes within a chunk of 32 KiB.
Source: RFC 3720, appendix B.4; leveldb's masking from doc/log_format.md.
"""

from __future__ import annotations

from functools import cache

import numpy as np

_POLYNOMIAL = 0x82F63B78  # reflected
_LANE = 256
_LANES = 128
_SMALL = 64


@cache
def _byte_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> 1) ^ np.where(table & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    return table


@cache
def _byte_list() -> list[int]:
    return _byte_table().tolist()


def _append_zero(words: np.ndarray) -> np.ndarray:
    """The CRC register after one more zero byte."""
    return _byte_table()[words & 0xFF] ^ (words >> 8)


@cache
def _tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """lane[j * 256 + b]: byte b at place j of a lane. shift[d, i, b]: byte i of a register, with value b,
    after d more lanes of zeros. chunk[i, b]: the same after a whole chunk."""
    lane = np.empty((_LANE, 256), np.uint32)
    lane[-1] = _byte_table()
    for j in range(_LANE - 1, 0, -1):
        lane[j - 1] = _append_zero(lane[j])
    words = np.arange(256, dtype=np.uint32) << np.array([[0], [8], [16], [24]], np.uint32)
    shift = np.empty((_LANES + 1, 4, 256), np.uint32)
    shift[0] = words
    for _ in range(_LANE):
        words = _append_zero(words)
    shift[1] = words
    for d in range(2, _LANES + 1):
        shift[d] = _shifted(shift[d - 1], shift[1])
    return lane.ravel(), shift[:_LANES], shift[_LANES]


def _shifted(words: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Registers moved on by what table (4, 256) stands for."""
    out = table[0][words & 0xFF]
    for i in (1, 2, 3):
        out = out ^ table[i][words >> np.uint32(8 * i) & 0xFF]
    return out


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """CRC-32C of data."""
    if len(data) < _SMALL:
        table, crc = _byte_list(), 0xFFFFFFFF
        for byte in bytes(data):
            crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
        return crc ^ 0xFFFFFFFF
    lane, shift, chunk = _tables()
    # Zeros in front change nothing; the initial inversion is that of the first four bytes.
    pad = -len(data) % _LANE
    padded = np.zeros(pad + len(data), np.uint8)
    padded[pad:] = np.frombuffer(data, np.uint8)
    padded[pad : pad + 4] ^= 0xFF
    lanes = padded.reshape(-1, _LANE)
    places = np.arange(_LANE, dtype=np.intp) * 256
    first = lanes.shape[0] % _LANES or _LANES
    crc = np.zeros((), np.uint32)
    start = 0
    for end in range(first, lanes.shape[0] + 1, _LANES):
        part = lanes[start:end]  # (lanes, 256)
        words = np.bitwise_xor.reduce(lane[part + places], axis=1)  # (lanes,)
        behind = np.arange(end - start - 1, -1, -1)
        total = shift[behind, 0, words & 0xFF]
        for i in (1, 2, 3):
            total ^= shift[behind, i, words >> np.uint32(8 * i) & 0xFF]
        crc = _shifted(crc, chunk) ^ np.bitwise_xor.reduce(total)
        start = end
    return int(crc) ^ 0xFFFFFFFF


def mask(crc: int) -> int:
    """A CRC as LevelDB stores it, so that a CRC over data that holds CRCs stays good."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
