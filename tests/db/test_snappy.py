from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffe.db.snappy import SnappyError, decompress


def varint(n: int) -> bytes:
    out = b""
    while n > 127:
        out, n = out + bytes((n & 127 | 128,)), n >> 7
    return out + bytes((n,))


def literal(data: bytes, width: int = 0) -> bytes:
    """A literal with its length in the tag, or in `width` bytes after it."""
    n = len(data) - 1
    return (bytes((n << 2,)) if not width else bytes((59 + width << 2,)) + n.to_bytes(width, "little")) + data


def copy(length: int, offset: int, kind: int) -> bytes:
    if kind == 1:
        return bytes((1 | length - 4 << 2 | offset >> 8 << 5, offset & 255))
    return bytes((kind | length - 1 << 2,)) + offset.to_bytes(2 if kind == 2 else 4, "little")


@pytest.mark.parametrize("width", [0, 1, 2, 3, 4])
def test_literals(width: int) -> None:
    data = bytes(range(60)) if width < 2 else bytes(range(256)) * 3
    assert decompress(varint(len(data)) + literal(data, width)) == data


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_copies(kind: int) -> None:
    start = bytes(range(20))
    assert decompress(varint(26) + literal(start) + copy(6, 15, kind)) == start + start[5:11]


@pytest.mark.parametrize("kind", [1, 2, 3])
@pytest.mark.parametrize("offset", [1, 2, 3])
def test_a_copy_may_overlap_itself(kind: int, offset: int) -> None:
    expected = bytearray(b"abc")
    for _ in range(11):
        expected.append(expected[-offset])
    assert decompress(varint(14) + literal(b"abc") + copy(11, offset, kind)) == expected


def test_far_copy() -> None:
    start = bytes(range(256)) * 8
    assert decompress(varint(2059) + literal(start, 2) + copy(11, 2047, 1)) == start + start[1:12]


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\xff" * 6,
        varint(5) + literal(b"abc"),  # too little
        varint(2) + literal(b"abc"),  # too much
        varint(3) + literal(b"abc")[:-1],
        varint(8) + literal(b"abcd") + copy(4, 5, 1),  # from before the start
        varint(8) + literal(b"abcd") + copy(4, 0, 1),
        varint(8) + literal(b"abcd") + b"\x0d",  # a copy without its offset
        varint(2**31) + literal(b"abcd"),
    ],
)
def test_damage_is_refused(damaged: bytes) -> None:
    with pytest.raises(SnappyError):
        decompress(damaged)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        assert len(decompress(data)) <= 22 * len(data)
    except SnappyError:
        pass
