"""JPEGs by simplejpeg: bit for bit what OpenCV gives, and nothing where only OpenCV knows what to do."""

from __future__ import annotations

import struct
import sys

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffe import fast_jpeg
from caffe.errors import DataError
from caffe.fast_jpeg import decode_jpeg
from caffe.image import decode

pytest.importorskip("simplejpeg", reason="the extra jpeg is not installed")

FLAGS = {True: cv2.IMREAD_COLOR, False: cv2.IMREAD_GRAYSCALE, None: cv2.IMREAD_UNCHANGED}
SAMPLINGS = ["411", "420", "422", "440", "444"]


def picture(height: int, width: int, channels: int) -> np.ndarray:
    rng = np.random.default_rng(height * 1000 + width)
    small = rng.integers(0, 256, (max(1, height // 4), max(1, width // 4), channels), dtype=np.uint8)
    return cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC).reshape(height, width, channels)


def jpeg(image: np.ndarray, *options: int) -> bytes:
    return cv2.imencode(".jpg", image, options)[1].tobytes()


def rotated(data: bytes) -> bytes:
    """The same file with an EXIF orientation of 6: to be turned by a right angle."""
    entry = struct.pack("<HHIHH", 0x0112, 3, 1, 6, 0)
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 1) + entry + bytes(4)
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:]


@pytest.mark.parametrize("color", FLAGS)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("progressive", [0, 1])
def test_the_bits_of_opencv(color: bool | None, channels: int, sampling: str, progressive: int) -> None:
    for height, width in [(1, 1), (7, 5), (16, 16), (17, 33), (100, 75), (227, 256)]:
        for quality in (10, 90, 100):
            data = jpeg(
                picture(height, width, channels),
                cv2.IMWRITE_JPEG_QUALITY,
                quality,
                cv2.IMWRITE_JPEG_PROGRESSIVE,
                progressive,
                cv2.IMWRITE_JPEG_SAMPLING_FACTOR,
                getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{sampling}"),
                cv2.IMWRITE_JPEG_RST_INTERVAL,
                quality % 4,
            )
            ours = decode_jpeg(memoryview(data), color)
            assert ours is not None and ours.dtype == np.uint8
            np.testing.assert_array_equal(ours, cv2.imdecode(np.frombuffer(data, np.uint8), FLAGS[color]))


@pytest.mark.parametrize("color", [True, False])
def test_what_may_have_to_be_turned_is_opencvs(color: bool) -> None:
    data = rotated(jpeg(picture(10, 30, 3)))
    assert decode_jpeg(data, color) is None
    assert decode(data, color).shape[:2] == (30, 10)


def test_as_it_is_stored_nothing_is_turned() -> None:
    data = rotated(jpeg(picture(10, 30, 3)))
    ours = decode_jpeg(data, None)
    assert ours is not None and ours.shape == (10, 30, 3)
    np.testing.assert_array_equal(ours, cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED))


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9])
def test_a_truncated_file_is_opencvs(kept: float) -> None:
    data = jpeg(picture(64, 64, 3))
    assert decode_jpeg(data[: int(kept * len(data))], None) is None


def result(data: bytes, color: bool | None) -> np.ndarray | str:
    try:
        return decode(data, color)
    except DataError as error:
        return str(error)


@pytest.fixture(scope="module")
def small_files() -> list[bytes]:
    options = [(), (cv2.IMWRITE_JPEG_PROGRESSIVE, 1), (cv2.IMWRITE_JPEG_RST_INTERVAL, 1)]
    return [jpeg(picture(24, 40, 3), *chosen) for chosen in options]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_files_give_what_opencv_makes_of_them(small_files: list[bytes], data: st.DataObject) -> None:
    file = bytearray(data.draw(st.sampled_from(small_files)))
    for _ in range(data.draw(st.integers(1, 4))):
        file[data.draw(st.integers(2, len(file) - 1))] = data.draw(st.integers(0, 255))
    color = data.draw(st.sampled_from(list(FLAGS)))
    ours = result(bytes(file), color)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_jpeg, "_simplejpeg", lambda: None)
        theirs = result(bytes(file), color)
    np.testing.assert_array_equal(ours, theirs)


def test_without_the_package_all_is_left_to_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    fast_jpeg._simplejpeg.cache_clear()
    try:
        data = jpeg(picture(24, 40, 3))
        assert decode_jpeg(data, None) is None
        np.testing.assert_array_equal(
            decode(data), cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        )
    finally:
        fast_jpeg._simplejpeg.cache_clear()
