from __future__ import annotations

import numpy as np
import pytest

from caffe.db.crc32c import crc32c, mask


def bit_by_bit(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "crc"),
    [  # RFC 3720, B.4
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_published_values(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc


# Around the borders of the small path, a lane (256), a chunk (32768) and several chunks.
@pytest.mark.parametrize(
    "size", [1, 4, 63, 64, 65, 255, 256, 257, 259, 4096, 32767, 32768, 32769, 65536, 70003]
)
def test_agrees_with_bit_by_bit(size: int, rng: np.random.Generator) -> None:
    data = rng.bytes(size)
    assert crc32c(data) == crc32c(memoryview(data)) == bit_by_bit(data)


def test_mask_rotates_and_adds() -> None:
    assert mask(0) == 0xA282EAD8
    assert mask(0x00008000) == (1 + 0xA282EAD8)
    assert mask(0xFFFFFFFF) == (0xFFFFFFFF + 0xA282EAD8) % 2**32
