"""Image files: of all kinds, and what is none."""

from __future__ import annotations

import base64
import struct
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffe.errors import DataError
from caffe.image import PlanarCopy, channels_first, decode, encode, read_image, resize
from caffe.image_header import broken_promise, claimed_pixels

# 8 x 8 pixels of cyan 200, magenta 30, yellow 10, black 40 (of 255), by Pillow.
CMYK_JPEG = base64.b64decode(
    "/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwAQCwwODAoQDg0OEhEQExgoGhgWFhgxIyUdKDozPTw5Mzg3QEhcTkBEV0U3OFBtUVdf"
    "YmdoZz5NcXlwZHhcZWdj/8AAFAgACAAIBEMRAE0RAFkRAEsRAP/EAB8AAAEFAQEBAQEBAAAAAAAAAAABAgMEBQYHCAkKC//E"
    "ALUQAAIBAwMCBAMFBQQEAAABfQECAwAEEQUSITFBBhNRYQcicRQygZGhCCNCscEVUtHwJDNicoIJChYXGBkaJSYnKCkqNDU2"
    "Nzg5OkNERUZHSElKU1RVVldYWVpjZGVmZ2hpanN0dXZ3eHl6g4SFhoeIiYqSk5SVlpeYmZqio6Slpqeoqaqys7S1tre4ubrC"
    "w8TFxsfIycrS09TV1tfY2drh4uPk5ebn6Onq8fLz9PX29/j5+v/aAA4EQwBNAFkASwAAPwDmq7Gu7rrK/9k="
)


def picture(rng: np.random.Generator, height: int = 24, width: int = 32, channels: int = 3) -> np.ndarray:
    """Smooth, so that JPEG keeps it."""
    small = rng.integers(40, 216, (4, 4, channels), dtype=np.uint8)
    return cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC).reshape(height, width, channels)


def file(image: np.ndarray, kind: str = "png") -> bytes:
    return cv2.imencode(f".{kind}", image)[1].tobytes()


@pytest.mark.parametrize("kind", ["png", "bmp", "tiff", "webp"])
def test_colour_and_grey_of_a_colour_image(rng: np.random.Generator, kind: str) -> None:
    image = picture(rng)
    lossless = [cv2.IMWRITE_WEBP_QUALITY, 101] if kind == "webp" else []
    data = cv2.imencode(f".{kind}", image, lossless)[1].tobytes()
    np.testing.assert_array_equal(decode(data), image)
    blue, green, red = image.transpose(2, 0, 1).astype(float)
    grey = decode(data, color=False)
    assert grey.shape == image.shape[:2]
    assert abs(grey - (0.114 * blue + 0.587 * green + 0.299 * red)).max() < 2


def test_a_grey_image_in_colour_and_as_it_is(rng: np.random.Generator) -> None:
    image = picture(rng, channels=1)[:, :, 0]
    np.testing.assert_array_equal(decode(file(image)), np.dstack([image] * 3))
    np.testing.assert_array_equal(decode(file(image), None), image)


def test_alpha_is_left_out_or_kept(rng: np.random.Generator) -> None:
    image = picture(rng, channels=4)
    np.testing.assert_array_equal(decode(file(image)), image[:, :, :3])
    np.testing.assert_array_equal(decode(file(image), None), image)


def test_16_bits_become_8_or_stay(rng: np.random.Generator) -> None:
    deep = picture(rng).astype(np.uint16) * 257
    assert decode(file(deep)).dtype == np.uint8
    assert abs(decode(file(deep)).astype(int) - deep // 257).max() <= 1
    np.testing.assert_array_equal(decode(file(deep), None), deep)


def test_a_palette(rng: np.random.Generator) -> None:
    """A PNG of one byte per pixel that points into a table of colours."""
    colours = rng.integers(0, 256, (256, 3), dtype=np.uint8)
    indices = rng.integers(0, 256, (5, 6), dtype=np.uint8)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    lines = b"".join(b"\0" + row.tobytes() for row in indices)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 6, 5, 8, 3, 0, 0, 0))
    data += chunk(b"PLTE", colours.tobytes()) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    np.testing.assert_array_equal(decode(data), colours[indices][:, :, ::-1])


def test_a_jpeg_with_four_inks() -> None:
    """CMYK, as image programs write it: Adobe's marker, all four inks inverted."""
    image = decode(CMYK_JPEG)
    assert image.shape == (8, 8, 3)
    ink = np.array([10, 30, 200])  # blue is what yellow leaves, and so on
    np.testing.assert_allclose(image[3, 3], (255 - ink) * (255 - 40) / 255, atol=4)
    assert decode(CMYK_JPEG, color=False).shape == (8, 8)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_where_a_form_is_asked_for(rng: np.random.Generator, orientation: int) -> None:
    image = picture(rng)
    plain = file(image, "jpg")
    exif = b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01" + struct.pack(
        ">HHI", orientation, 0, 0
    )
    marked = plain[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + plain[2:]
    upright = decode(plain)
    # What rows and columns of the file are in the picture, by the EXIF standard.
    turned = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: upright.transpose(1, 0, 2)[:, ::-1],
        7: upright.transpose(1, 0, 2)[::-1, ::-1],
        8: upright.transpose(1, 0, 2)[::-1],
    }[orientation]
    np.testing.assert_array_equal(decode(marked), turned)


@pytest.mark.parametrize("lost", [1, 2, 100])
def test_a_jpeg_that_ends_too_early_is_read_as_from_a_file(
    tmp_path: Path, rng: np.random.Generator, lost: int
) -> None:
    data = file(picture(rng, 96, 96), "jpg")[:-lost]
    path = tmp_path / "short.jpg"
    path.write_bytes(data)
    np.testing.assert_array_equal(decode(data), cv2.imread(str(path)))


def test_the_ending_of_the_name_means_nothing(tmp_path: Path, rng: np.random.Generator) -> None:
    image = picture(rng)
    (tmp_path / "x.jpg").write_bytes(file(image, "png"))
    np.testing.assert_array_equal(read_image("x.jpg"), image)


def test_sizes(tmp_path: Path, rng: np.random.Generator) -> None:
    image = picture(rng)
    (tmp_path / "x.png").write_bytes(file(image))
    assert read_image("x.png", height=7, width=9).shape == (7, 9, 3)
    assert read_image("x.png", color=False, height=50, width=60).shape == (50, 60)
    np.testing.assert_array_equal(resize(image, 24, 32), image)
    np.testing.assert_array_equal(resize(image, 0, 0), image)
    # Bilinear, by half: pixel centres fall between four pixels.
    quads = image.reshape(12, 2, 16, 2, 3).astype(float).mean(axis=(1, 3))
    assert abs(resize(image, 12, 16) - quads).max() <= 1


def test_encode(rng: np.random.Generator) -> None:
    image = picture(rng)
    np.testing.assert_array_equal(decode(encode(image, "png")), image)
    assert encode(image, "jpg")[:2] == b"\xff\xd8"
    with pytest.raises(DataError, match="OpenCV does not encode images as 'wav'"):
        encode(image, "wav")


# -- what is no image -----------------------------------------------------------------------------------


def huge_png() -> bytes:
    """The header of an image of more pixels than OpenCV takes."""
    data = bytearray(file(np.zeros((4, 4), np.uint8)))
    data[16:24] = struct.pack(">II", 60_000, 60_000)
    data[29:33] = struct.pack(">I", zlib.crc32(bytes(data[12:29])))
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it has no bytes"),
        (b"<html>not found</html>", "no image to OpenCV, or a damaged one"),
        (file(np.zeros((40, 40), np.uint8))[:60], "its 60 bytes do not hold all of the PNG that they begin"),
        (b"\xff\xd8\xff\xe0", "no image to OpenCV, or a damaged one"),
        (huge_png(), "bytes claim to be 3,600,000,000 pixels: it is damaged"),
        (huge_png().ljust(1 << 19, b"\0"), "OpenCV cannot decode its 524288 bytes: .*MAX_IMAGE_PIXELS"),
    ],
    ids=["empty", "text", "half a PNG", "a JPEG's first bytes", "too many pixels", "too many for OpenCV"],
)
def test_what_is_no_image_is_named(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "bad.png").write_bytes(data)
    with pytest.raises(DataError, match=f"Could not load bad.png: .*{message}"):
        read_image("bad.png")


def test_a_file_that_is_not_there_or_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Could not open or find file none.png: No such file"):
        read_image("none.png")
    with pytest.raises(DataError, match="Could not open or find file .*: Is a directory"):
        read_image(str(tmp_path))
    with pytest.raises(DataError, match="Could not open or find file"):
        read_image("a\0b.png")


def test_sizes_that_opencv_refuses(rng: np.random.Generator) -> None:
    with pytest.raises(DataError, match="OpenCV cannot resize it to 2147483648 x 4"):
        resize(picture(rng), 2**31, 4)


@given(
    start=st.sampled_from(
        [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"BM", b"GIF89a", b"II*\0", b"RIFF"]
    ),
    rest=st.binary(max_size=300),
    color=st.sampled_from([True, False, None]),
)
def test_any_bytes_are_an_image_or_refused(start: bytes, rest: bytes, color: bool | None) -> None:
    try:
        image = decode(start + rest, color)
    except DataError:
        return
    assert image.size


def test_threads_decode_at_once(rng: np.random.Generator) -> None:
    images = [picture(rng) for _ in range(8)]
    found: dict[int, np.ndarray] = {}
    threads = [
        threading.Thread(target=lambda i=i: found.update({i: decode(file(images[i]))})) for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, image in enumerate(images):
        np.testing.assert_array_equal(found[i], image)


@pytest.mark.parametrize("kind", ["png", "jpg", "bmp", "webp", "gif"])
@pytest.mark.parametrize("size", [(3, 500), (1, 1), (300, 41)])
def test_the_size_that_a_header_tells(kind: str, size: tuple[int, int]) -> None:
    if not cv2.haveImageWriter(f"x.{kind}"):
        pytest.skip(f"this OpenCV does not write {kind}")
    data = file(np.zeros((*size, 3), np.uint8), kind)
    assert claimed_pixels(data) == size[0] * size[1]
    assert not broken_promise(data)
    for end in range(len(data)):  # cut off anywhere, it is no fault in reading
        assert claimed_pixels(data[:end]) in (0, size[0] * size[1])


def test_a_lossless_webp_tells_its_size() -> None:
    data = cv2.imencode(".webp", np.zeros((30, 41, 3), np.uint8), [cv2.IMWRITE_WEBP_QUALITY, 101])[1]
    assert claimed_pixels(data.tobytes()) == 30 * 41


def test_a_bitmap_of_os2_is_read() -> None:
    """Its header holds sizes of 16 bits."""
    rows = bytes(range(1, 25))
    head = struct.pack("<2sIHHI", b"BM", 26 + len(rows), 0, 0, 26) + struct.pack("<IHHHH", 12, 4, 2, 1, 24)
    assert claimed_pixels(head) == 8
    # From the bottom row upwards.
    wanted = np.frombuffer(rows, np.uint8).reshape(2, 4, 3)[::-1]
    np.testing.assert_array_equal(decode(head + rows), wanted)


SIDE = 30_000
HUGE = {
    "ppm": b"P6 %d %d 255\n" % (SIDE, SIDE),
    "pfm": b"PF\n%d %d\n-1.0\n" % (SIDE, SIDE),
    "hdr": b"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n\n-Y %d +X %d\n" % (SIDE, SIDE),
    # Its directory: width, height, bits, compression, kind, where strips are, channels, rows a strip, sizes.
    "tiff": struct.pack("<2sHIH", b"II", 42, 8, 9)
    + b"".join(
        struct.pack("<HHII", tag, 4, 1, value)
        for tag, value in [
            (256, SIDE),
            (257, SIDE),
            (258, 8),
            (259, 1),
            (262, 2),
            (273, 8),
            (277, 3),
            (278, SIDE),
            (279, 50),
        ]
    )
    + bytes(100),
}


def decode_huge(kind: str) -> tuple[str, int]:
    """What is said about it, and by how many bytes the process grew."""
    resource = pytest.importorskip("resource")
    decode(file(np.zeros((4, 4, 3), np.uint8)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError) as caught:
        decode(HUGE[kind] + bytes(100))
    return str(caught.value), 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


@pytest.mark.parametrize("kind", HUGE)
def test_a_header_that_promises_too_much_costs_no_memory(kind: str) -> None:
    call = f"from test_image import decode_huge; print(*decode_huge({kind!r}), sep='|')"
    run = subprocess.run(
        [sys.executable, "-c", call], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    words, grown = run.stdout.strip().split("|")
    assert "no image to OpenCV, or a damaged one" in words or "cannot decode" in words
    assert int(grown) < 1 << 26


def test_a_jpeg_2000_that_promises_too_much() -> None:
    """OpenJPEG would take minutes for it."""
    data = bytearray(file(np.zeros((64, 80, 3), np.uint8), "jp2"))
    assert claimed_pixels(data) == 64 * 80
    at = data.index(b"\xff\x4f\xff\x51")
    struct.pack_into(">II", data, at + 8, SIDE, SIDE)
    for damaged in (data, data[at:]):  # in its boxes, and alone
        with pytest.raises(DataError, match="bytes claim to be 900,000,000 pixels"):
            decode(bytes(damaged))


def test_a_blank_image_is_no_broken_promise() -> None:
    """A thousand pixels and more for each byte are possible."""
    data = file(np.zeros((7000, 7000), np.uint8))
    assert 7000 * 7000 > 500 * len(data)
    assert decode(data, False).shape == (7000, 7000)


# -- copies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("layout", ["planes", "interleaved", "part of planes", "part of interleaved", "grey"])
def test_planar_copies(rng: np.random.Generator, mirror: bool, layout: str) -> None:
    pixels = rng.integers(0, 256, (9, 11, 3), dtype=np.uint8)
    image = {
        "planes": np.ascontiguousarray(pixels.transpose(2, 0, 1)),
        "interleaved": channels_first(pixels),
        "part of planes": np.ascontiguousarray(pixels.transpose(2, 0, 1))[:, 2:8, 3:],
        "part of interleaved": channels_first(pixels)[:, 2:8, 3:],
        "grey": channels_first(pixels[:, :, 0]),
    }[layout]
    image.flags.writeable = False  # as bytes of a record are
    copy = PlanarCopy()
    out = np.full(image.shape, -1, np.float32)
    for _ in range(2):  # with its memory used again
        copy(image, mirror, out)
        np.testing.assert_array_equal(out, image[:, :, ::-1] if mirror else image)


def test_importing_does_not_load_opencv() -> None:
    code = "import caffe.image, sys; sys.exit('cv2' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
