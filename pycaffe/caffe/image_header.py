"""What the first bytes of an image file promise, where decoders would take the memory for it first.

Damaged headers promise any size. OpenCV allocates it, and finds out afterwards that the file holds less.
"""

from __future__ import annotations

import struct

# Images of so many pixels are tried in any case. Larger ones need at least a byte for each _PER_BYTE pixels,
# which is what PNG makes of a blank image of one bit per pixel.
_ALWAYS, _PER_BYTE = 1 << 25, 8256

_PNG = b"\x89PNG"
_JP2, _CODESTREAM = b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51"

# JPEG's markers of frames, which hold the size: C0 to CF but for DHT, JPG and DAC.
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}


def broken_promise(data: bytes | memoryview) -> str:
    """What an image file promises and cannot hold, or ""."""
    pixels = claimed_pixels(data)
    if pixels > max(_ALWAYS, _PER_BYTE * len(data)):
        return f"its {len(data)} bytes claim to be {pixels:,} pixels"
    if bytes(data[:4]) == _PNG and not _png_chunks_fit(data):
        return f"its {len(data)} bytes do not hold all of the PNG that they begin"
    return ""


def _png_chunks_fit(data: bytes | memoryview) -> bool:
    """Is every chunk, up to the one that ends the image, in the file?"""
    at = 8
    while at + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        at += 12 + length
        if kind == b"IEND":
            break
    return at <= len(data)


def claimed_pixels(data: bytes | memoryview) -> int:
    """Height times width by the header of a JPEG, PNG, GIF, BMP, WebP or JPEG 2000; 0 where it tells none.

    Files of other kinds, TIFF among them, OpenCV reads row by row: it touches no more memory than they fill.
    """
    begin = bytes(data[:32])
    try:
        if begin.startswith(b"\xff\xd8"):
            return _jpeg(data)
        if begin.startswith(_PNG):
            return _product(">II", begin, 16)
        if begin.startswith(b"GIF8"):
            return _product("<HH", begin, 6)
        if begin.startswith(b"BM"):
            # OS/2's header is shorter, and has smaller numbers.
            return _product("<HH" if begin[14] == 12 else "<ii", begin, 18)
        if begin.startswith(b"RIFF") and begin[8:12] == b"WEBP":
            return _webp(begin)
        if begin.startswith((_JP2, _CODESTREAM)):
            return _jpeg2000(data)
    except (struct.error, IndexError, ValueError):  # it ends before
        pass
    return 0


def _product(form: str, data: bytes | memoryview, at: int) -> int:
    height, width = struct.unpack_from(form, data, at)
    return abs(height * width)


def _jpeg(data: bytes | memoryview) -> int:
    at = 2
    while True:
        mark, kind = struct.unpack_from(">BB", data, at)
        if mark != 0xFF:
            return 0
        if kind in _FRAMES:
            return _product(">HH", data, at + 5)
        # Fill bytes stand alone; other segments say how long they are.
        at += 1 if kind == 0xFF else 2 + struct.unpack_from(">H", data, at + 2)[0]


def _webp(begin: bytes) -> int:
    kind = begin[12:16]
    if kind == b"VP8 ":
        height, width = struct.unpack_from("<HH", begin, 26)
        return (height & 0x3FFF) * (width & 0x3FFF)
    if kind == b"VP8L":
        bits = struct.unpack_from("<I", begin, 21)[0]
        return ((bits & 0x3FFF) + 1) * ((bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8X":
        return (1 + int.from_bytes(begin[24:27], "little")) * (1 + int.from_bytes(begin[27:30], "little"))
    return 0


def _jpeg2000(data: bytes | memoryview) -> int:
    """By the codestream, which is what is decoded; boxes may stand before it."""
    at = bytes(data).index(_CODESTREAM)
    right, bottom, left, top = struct.unpack_from(">4I", data, at + 8)
    return abs((right - left) * (bottom - top))
