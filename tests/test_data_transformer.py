"""DataTransformer against naive loops over pixels."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from caffe.data_transformer import DataTransformer, read_mean
from caffe.datum import Datum, DatumParser
from caffe.errors import DataError
from caffe.proto import caffe_pb2

TRAIN, TEST = caffe_pb2.TRAIN, caffe_pb2.TEST


def transformer(phase: int = TEST, **fields: object) -> DataTransformer:
    return DataTransformer(caffe_pb2.TransformationParameter(**fields), phase)


def write_mean(path: Path, mean: np.ndarray, **dims: int) -> str:
    blob = caffe_pb2.BlobProto(**dims)
    if not dims:
        blob.shape.dim.extend(mean.shape)
    blob.data.extend(mean.ravel().tolist())
    path.write_bytes(blob.SerializeToString())
    return str(path)


def naive(
    image: np.ndarray,
    size: tuple[int, int],
    row: int,
    column: int,
    flip: bool,
    mean: np.ndarray,
    scale: float,
) -> np.ndarray:
    """Pixel by pixel. mean: (C, H, W)."""
    height, width = size
    out = np.empty((len(image), height, width), np.float32)
    for c in range(len(image)):
        for h in range(height):
            for w in range(width):
                value = np.float32(image[c, row + h, column + w]) - np.float32(mean[c, row + h, column + w])
                out[c, h, width - 1 - w if flip else w] = value * np.float32(scale)
    return out


def images(rng: np.random.Generator, count: int, shape: tuple[int, ...], kind: str) -> np.ndarray:
    if kind == "uint8":
        return rng.integers(0, 256, (count, *shape), dtype=np.uint8)
    return rng.normal(0, 50, (count, *shape)).astype(np.float32)


# How a batch comes: one array where geometry agrees, else a list.
@pytest.mark.parametrize("form", [np.asarray, list], ids=["array", "list"])
@pytest.mark.parametrize("kind", ["uint8", "float32"])
@pytest.mark.parametrize("crop", [0, 4])
@pytest.mark.parametrize("mean", ["none", "file", "one value", "value per channel"])
@pytest.mark.parametrize("scale", [1.0, 0.017])
def test_test_phase_cuts_the_centre(
    tmp_path: Path, rng: np.random.Generator, form: type, kind: str, crop: int, mean: str, scale: float
) -> None:
    batch = images(rng, 3, (3, 7, 9), kind)
    fields: dict[str, object] = {"scale": scale, "crop_size": crop}
    full = np.zeros((3, 7, 9), np.float32)
    if mean == "file":
        full = rng.uniform(0, 255, (3, 7, 9)).astype(np.float32)
        fields["mean_file"] = write_mean(tmp_path / "mean.binaryproto", full[None])
    elif mean == "one value":
        full += 100.5
        fields["mean_value"] = [100.5]
    elif mean == "value per channel":
        full += np.float32([104, 117, 123]).reshape(3, 1, 1)
        fields["mean_value"] = [104, 117, 123]
    t = transformer(TEST, **fields)
    shape = t.output_shape((3, 7, 9))
    assert shape == (3, crop or 7, crop or 9)
    out = np.full((3, *shape), np.nan, np.float32)
    t.transform_batch(form(batch), out)
    row, column = ((7 - crop) // 2, (9 - crop) // 2) if crop else (0, 0)
    for i in range(3):
        np.testing.assert_array_equal(out[i], naive(batch[i], shape[1:], row, column, False, full, scale))


@pytest.mark.parametrize("form", [np.asarray, list], ids=["array", "list"])
@pytest.mark.parametrize("with_mean", [False, True])
def test_train_phase_cuts_and_flips_by_its_random_words(
    tmp_path: Path, rng: np.random.Generator, form: type, with_mean: bool
) -> None:
    batch = images(rng, 6, (2, 8, 11), "uint8")
    full = (
        rng.uniform(0, 255, (2, 8, 11)).astype(np.float32) if with_mean else np.zeros((2, 8, 11), np.float32)
    )
    fields = {"mean_file": write_mean(tmp_path / "m", full)} if with_mean else {}
    t = transformer(TRAIN, crop_size=5, mirror=True, scale=0.5, **fields)
    # Rows 0 to 3 and columns 0 to 6 are possible; the smallest and the largest word give the outermost.
    places = [(0, 0, False), (3, 6, True), (1, 3, False), (2, 5, True), (3, 0, False), (0, 6, True)]
    words = np.array(
        [
            [int(flip), (row * 2**32 + 2**31) // 4 if row < 3 else 2**32 - 1, -(-column * 2**32 // 7)]
            for row, column, flip in places
        ],
        np.uint64,
    ).astype(np.uint32)
    out = np.empty((6, 2, 5, 5), np.float32)
    t.transform_batch(form(batch), out, words)
    for i, (row, column, flip) in enumerate(places):
        np.testing.assert_array_equal(out[i], naive(batch[i], (5, 5), row, column, flip, full, 0.5))


def test_every_place_is_as_likely() -> None:
    t = transformer(TRAIN, crop_size=2)
    image = np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4)
    count = 9000
    words = np.random.default_rng(3).integers(0, 2**32, (count, 3), dtype=np.uint32)
    out = np.empty((count, 1, 2, 2), np.float32)
    t.transform_batch(np.broadcast_to(image, (count, 1, 4, 4)), out, words)
    corners, found = np.unique(out[:, 0, 0, 0], return_counts=True)
    assert corners.tolist() == [0, 1, 2, 4, 5, 6, 8, 9, 10]
    # 1,000 each; the deviation of one is 30.
    assert abs(found - 1000).max() < 150


def test_mirror_flips_in_the_test_phase_too() -> None:
    t = transformer(TEST, mirror=True)
    assert t.needs_random
    out = np.empty((2, 1, 1, 3), np.float32)
    batch = np.uint8([[[[1, 2, 3]]], [[[1, 2, 3]]]])
    t.transform_batch(batch, out, np.uint32([[1, 0, 0], [2, 0, 0]]))
    assert out.ravel().tolist() == [3, 2, 1, 1, 2, 3]


def test_a_crop_as_large_as_the_image_is_allowed(rng: np.random.Generator) -> None:
    batch = images(rng, 2, (1, 5, 5), "uint8")
    out = np.empty((2, 1, 5, 5), np.float32)
    words = np.full((2, 3), 2**32 - 1, np.uint32)
    transformer(TRAIN, crop_size=5).transform_batch(batch, out, words)
    np.testing.assert_array_equal(out, batch)


def test_images_of_several_sizes_give_one_batch_when_cropped(rng: np.random.Generator) -> None:
    batch = [images(rng, 1, (1, 5, 6), "uint8")[0], images(rng, 1, (1, 8, 4), "float32")[0]]
    out = np.empty((2, 1, 4, 4), np.float32)
    transformer(TEST, crop_size=4).transform_batch(batch, out)
    np.testing.assert_array_equal(out[0], batch[0][:, 0:4, 1:5])
    np.testing.assert_array_equal(out[1], batch[1][:, 2:6, 0:4])


# -- datums ---------------------------------------------------------------------------------------------


def datum(data: bytes = b"", floats: np.ndarray | None = None, encoded: bool = False, **fields: int) -> Datum:
    message = caffe_pb2.Datum(data=data, encoded=encoded, **fields)
    if floats is not None:
        message.ClearField("data")
        message.float_data.extend(floats.ravel().tolist())
    return DatumParser().parse(message.SerializeToString())


def raw(image: np.ndarray) -> Datum:
    c, h, w = image.shape
    return datum(image.tobytes(), channels=c, height=h, width=w)


def test_gather_makes_one_array_of_small_raw_images(rng: np.random.Generator) -> None:
    batch = images(rng, 3, (3, 4, 5), "uint8")
    np.testing.assert_array_equal(transformer().gather([raw(image) for image in batch]), batch)


def test_gather_leaves_different_images_to_be_taken_one_by_one(rng: np.random.Generator) -> None:
    bytes_image = raw(images(rng, 1, (1, 3, 4), "uint8")[0])
    float_image = datum(floats=images(rng, 1, (1, 3, 4), "float32")[0], channels=1, height=3, width=4)
    other_size = raw(images(rng, 1, (1, 4, 3), "uint8")[0])
    for other in (float_image, other_size, png(np.zeros((3, 4), np.uint8))):
        assert transformer().gather([bytes_image, other]) is None


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("with_mean", [False, True])
def test_images_with_interleaved_channels(
    tmp_path: Path, rng: np.random.Generator, channels: int, with_mean: bool
) -> None:
    """As decoding gives them, one after the other."""
    pixels = rng.integers(0, 256, (4, 7, 8, channels), dtype=np.uint8)
    full = rng.uniform(0, 9, (channels, 7, 8)).astype(np.float32) * with_mean
    fields = {"mean_file": write_mean(tmp_path / "m", full)} if with_mean else {}
    t = transformer(TRAIN, crop_size=5, mirror=True, **fields)
    words = np.array([[flip, 2**31, 2**31] for flip in (0, 1, 1, 0)], np.uint32)
    out = np.empty((4, channels, 5, 5), np.float32)
    t.transform_batch((image.transpose(2, 0, 1) for image in pixels), out, words)
    for i, flip in enumerate((False, True, True, False)):
        wanted = naive(pixels[i].transpose(2, 0, 1), (5, 5), 1, 2, flip, full, 1)
        np.testing.assert_array_equal(out[i], wanted)


def png(pixels: np.ndarray) -> Datum:
    return datum(cv2.imencode(".png", pixels)[1].tobytes(), encoded=True)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_encoded_images_are_decoded_as_stored(rng: np.random.Generator, channels: int) -> None:
    pixels = rng.integers(0, 256, (5, 6, channels), dtype=np.uint8)
    found = transformer().image(png(pixels[:, :, 0] if channels == 1 else pixels))
    np.testing.assert_array_equal(found, pixels.transpose(2, 0, 1))


def test_force_color_and_gray(rng: np.random.Generator) -> None:
    gray = rng.integers(0, 256, (5, 6), dtype=np.uint8)
    np.testing.assert_array_equal(transformer(force_color=True).image(png(gray)), np.stack([gray] * 3))
    equal = np.stack([gray] * 3, axis=-1)  # grey of equal channels is that channel
    found = transformer(force_gray=True).image(png(equal))
    assert found.shape == (1, 5, 6)
    assert np.abs(found[0].astype(int) - gray).max() <= 1


@pytest.mark.parametrize("data", [b"", b"\x89PNG\r\n\x1a\n", b"no image at all"])
def test_what_cannot_be_decoded(data: bytes) -> None:
    with pytest.raises(DataError, match="Could not decode datum"):
        transformer().decode(data)


def test_sixteen_bits_are_refused() -> None:
    deep = png(np.full((3, 3), 40_000, np.uint16))
    with pytest.raises(DataError, match="must be unsigned byte, not uint16; set force_color"):
        transformer().image(deep)
    assert transformer(force_gray=True).image(deep).shape == (1, 3, 3)


# -- what goes wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "shape", "message"),
    [
        ({"crop_size": 6}, (3, 5, 9), r"crop_size \(=6\) exceeds the image of 3 x 5 x 9"),
        ({"crop_size": 6}, (32, 32, 3), "stored as height x width x channels"),
        ({"mean_value": [1, 2]}, (3, 5, 5), "Specify either 1 mean_value or as many as channels: 2 given"),
    ],
)
def test_images_that_do_not_fit(fields: dict[str, object], shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        transformer(**fields).output_shape(shape)


def test_a_mean_of_another_size_names_both(tmp_path: Path) -> None:
    path = write_mean(tmp_path / "mean.binaryproto", np.zeros((1, 3, 4, 4), np.float32))
    with pytest.raises(
        DataError, match=r"mean.binaryproto' has 3 x 4 x 4 values, the image 3 x 6 x 6.*before crop"
    ):
        transformer(mean_file=path, crop_size=4).output_shape((3, 6, 6))


def test_contradicting_fields() -> None:
    with pytest.raises(DataError, match="Cannot specify mean_file and mean_value at the same time"):
        transformer(mean_file="x", mean_value=[1])
    with pytest.raises(DataError, match="cannot set both force_color and force_gray"):
        transformer(force_color=True, force_gray=True)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ((1, 5, 6), "second gives 1 x 5 x 6 values .*batch has 1 x 5 x 5.*set crop_size"),
        ((3, 5, 5), "second gives 3 x 5 x 5 .*force_color or force_gray"),
    ],
)
def test_a_batch_must_agree(second: tuple[int, ...], message: str) -> None:
    batch = [np.zeros((1, 5, 5), np.uint8), np.zeros(second, np.uint8)]
    with pytest.raises(DataError, match=message):
        transformer().transform_batch(
            batch, np.empty((2, 1, 5, 5), np.float32), name=("first", "second").__getitem__
        )


def test_random_words_are_asked_for() -> None:
    with pytest.raises(ValueError, match="random words"):
        transformer(mirror=True).transform_batch(np.zeros((1, 1, 2, 2)), np.empty((1, 1, 2, 2), np.float32))


@pytest.mark.parametrize("dims", [{}, {"num": 1, "channels": 3, "height": 2, "width": 4}])
@pytest.mark.parametrize("leading", [False, True])
def test_mean_files_of_old_and_new_shape(
    tmp_path: Path, rng: np.random.Generator, dims: dict[str, int], leading: bool
) -> None:
    mean = rng.normal(size=(3, 2, 4)).astype(np.float32)
    path = write_mean(tmp_path / "mean", mean[None] if leading else mean, **dims)
    np.testing.assert_array_equal(read_mean(path), mean)


def test_mean_in_double_precision(tmp_path: Path) -> None:
    blob = caffe_pb2.BlobProto(double_data=[0.5, 1.5])
    blob.shape.dim.extend([1, 1, 1, 2])
    (tmp_path / "mean").write_bytes(blob.SerializeToString())
    assert read_mean(str(tmp_path / "mean")).tolist() == [[[0.5, 1.5]]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"\xff\xff\xff", "is no binaryproto"),
        (b"", "0 values"),
        (
            caffe_pb2.BlobProto(num=1, channels=1, height=2, width=2, data=[1]).SerializeToString(),
            "holds 1 values",
        ),
        (
            caffe_pb2.BlobProto(num=2, channels=1, height=1, width=1, data=[1, 2]).SerializeToString(),
            "not one image",
        ),
        (
            caffe_pb2.BlobProto(num=1, channels=-1, height=-1, width=1, data=[1]).SerializeToString(),
            "not one image",
        ),
    ],
)
def test_mean_files_that_are_none(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "mean"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_mean(str(path))
