"""caffe.io against what pycaffe's documentation says and scikit-image of its day gave."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

import caffe
from caffe.errors import CaffeError, DataError, ShapeError
from caffe.proto import caffe_pb2

io = caffe.io
RECORD = np.load(Path(__file__).parent / "resizing_of_skimage_0_13.npz")


# -- resizing ---------------------------------------------------------------------------------------------

# Nearest of two that are equally near, and middles of pixels just on the border: rounding decided.
TIES = {f"rgb_{case}_order_0" for case in (1, 2, 3, 4, 7)}
TIES |= {f"rgb_{case}_order_{order}" for case in (2, 4) for order in (2, 4, 5)}


@pytest.mark.parametrize("name", [n for n in RECORD.files if "_order_" in n and n not in TIES])
def test_resizes_as_scikit_image_did(name: str) -> None:
    case, order = name.split("_order_")
    image, wanted = RECORD[f"{case}_image"], RECORD[name]
    before = image.copy()
    resized = io.resize_image(image, wanted.shape[:2], interp_order=int(order))
    assert resized.dtype == np.float32 and resized.shape == wanted.shape
    np.testing.assert_allclose(resized, wanted, atol=1e-4)
    np.testing.assert_array_equal(image, before)


@pytest.mark.parametrize("order", range(6))
@pytest.mark.parametrize("shape", [(6, 7, 3), (1, 5, 1), (2, 1, 3), (3, 2, 4)])
def test_every_order_goes_through_the_pixels(order: int, shape: tuple, rng: np.random.Generator) -> None:
    image = rng.standard_normal(shape)
    np.testing.assert_allclose(io.resize_image(image, shape[:2], order), image, atol=1e-6)


def test_resizing_keeps_constant_images_and_takes_bytes(rng: np.random.Generator) -> None:
    flat = io.resize_image(np.full((3, 4, 3), 7, np.uint8), (5, 6))
    np.testing.assert_array_equal(flat, np.full((5, 6, 3), 7, np.float32))
    pixels = rng.integers(0, 256, (6, 7, 3), np.uint8)
    np.testing.assert_allclose(
        io.resize_image(pixels, (4, 9)), io.resize_image(pixels.astype(float), (4, 9)), atol=1e-4
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: io.resize_image(np.zeros((4, 4)), (2, 2)),
            r"\(height, width, channels\), not of shape \(4, 4\). A grey one is",
        ),
        (lambda: io.resize_image(np.zeros((0, 4, 3)), (2, 2)), "not of shape"),
        (lambda: io.resize_image(np.zeros((4, 4, 3)), (0, 2)), "1 or more each"),
        (lambda: io.resize_image(np.zeros((4, 4, 3)), 2), "1 or more each, not 2"),
        (lambda: io.resize_image("a.png", (2, 2)), "not 'a.png'; caffe.io.load_image reads a file"),
        (
            lambda: io.resize_image(np.zeros((4, 4, 3)), (2, 2), interp_order=6),
            r"interp_order \(=6\) must be",
        ),
        (lambda: io.resize_image(np.zeros((4, 4, 5)), (2, 2), interp_order=-1), r"interp_order \(=-1\)"),
    ],
)
def test_refusals_of_resizing(call, words: str) -> None:
    with pytest.raises(DataError, match=words):
        call()


# -- files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in RECORD.files if n.startswith(("color_", "grey_"))])
def test_loads_images_as_scikit_image_did(name: str, golden: Path) -> None:
    kind, _, file = name.partition("_")
    loaded = io.load_image(golden / "data/images/odd" / file, color=kind == "color")
    wanted = RECORD[name]
    if wanted.ndim == 2:
        wanted = np.repeat(wanted[:, :, None], 3 if kind == "color" else 1, axis=2)
    assert loaded.dtype == np.float32
    np.testing.assert_allclose(loaded, wanted[:, :, :3], atol=2e-7)


def test_loaded_images_are_red_green_blue_without_orientation(golden: Path) -> None:
    cv2.imwrite("red.png", np.full((2, 3, 3), (0, 0, 255), np.uint8))
    np.testing.assert_array_equal(io.load_image("red.png"), np.full((2, 3, 3), (1, 0, 0), np.float32))
    # 11 x 14 pixels stored; upright it would be 14 x 11.
    assert io.load_image(golden / "data/images/odd/exif6.jpg").shape == (11, 14, 3)


def test_a_file_that_is_no_image() -> None:
    Path("text.png").write_text("hello")
    for path in ("text.png", "absent.png"):
        with pytest.raises(DataError, match=path):
            io.load_image(path)


# -- crops ------------------------------------------------------------------------------------------------


def test_oversample_by_naive_cropping(rng: np.random.Generator) -> None:
    images = [rng.uniform(size=(7, 9, 2)).astype(np.float32) for _ in range(2)]
    crops = io.oversample(images, (4, 4))
    assert crops.shape == (20, 4, 4, 2) and crops.dtype == np.float32
    for i, image in enumerate(images):
        for j, (y, x) in enumerate([(0, 0), (0, 5), (3, 0), (3, 5), (1, 2)]):
            cut = image[y : y + 4, x : x + 4]
            np.testing.assert_array_equal(crops[10 * i + j], cut)
            np.testing.assert_array_equal(crops[10 * i + 5 + j], cut[:, ::-1])


def test_refusals_of_oversample() -> None:
    with pytest.raises(DataError, match="5 x 2 do not fit images of"):
        io.oversample([np.zeros((4, 4, 3))], (5, 2))
    with pytest.raises(DataError, match="of one size"):
        io.oversample([np.zeros((4, 4, 3)), np.zeros((4, 5, 3))], (2, 2))
    with pytest.raises(DataError, match="none"):
        io.oversample([], (2, 2))


# -- messages ---------------------------------------------------------------------------------------------


def test_blobprotos_of_both_ages() -> None:
    array = np.arange(24.0).reshape(2, 3, 4)
    blob = io.array_to_blobproto(array, diff=-array)
    np.testing.assert_array_equal(io.blobproto_to_array(blob), array)
    np.testing.assert_array_equal(io.blobproto_to_array(blob, return_diff=True), -array)
    old = caffe_pb2.BlobProto(num=1, channels=2, height=3, width=4, data=range(24))
    assert io.blobproto_to_array(old).shape == (1, 2, 3, 4)
    double = caffe_pb2.BlobProto(double_data=[0.1], shape={"dim": [1]})
    assert io.blobproto_to_array(double).tolist() == [0.1]
    assert io.blobproto_to_array(io.array_to_blobproto(np.float32(3))).shape == ()
    with pytest.raises(ValueError, match=r"shape \(\) must hold 1 data, not 2"):
        io.blobproto_to_array(caffe_pb2.BlobProto(data=[1, 2]))
    with pytest.raises(ShapeError, match=r"shape \(2, 3\) must hold 6 data, not 1"):
        io.blobproto_to_array(caffe_pb2.BlobProto(data=[1], shape={"dim": [2, 3]}))
    with pytest.raises(ValueError, match="the diff has 3 values, the data 4"):
        io.array_to_blobproto(np.zeros((2, 2)), diff=np.zeros(3))


def test_lists_of_arrays() -> None:
    arrays = [np.ones((2, 3)), np.zeros((1, 2, 2, 1))]
    back = io.blobprotovector_str_to_arraylist(io.arraylist_to_blobprotovector_str(arrays))
    for ours, theirs in zip(back, arrays, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(DataError, match="BlobProtoVector"):
        io.blobprotovector_str_to_arraylist(b"\xff\xff")


def test_datums(rng: np.random.Generator, golden: Path) -> None:
    pixels = rng.integers(0, 256, (3, 4, 5), np.uint8)
    back = io.datum_to_array(io.array_to_datum(pixels, label=np.int64(3)))
    np.testing.assert_array_equal(back, pixels)
    back[...] = 0  # an array of one's own
    values = rng.standard_normal((2, 2, 3))
    datum = io.array_to_datum(values)
    assert not datum.HasField("label")
    np.testing.assert_allclose(io.datum_to_array(datum), values, rtol=1e-6)

    file = golden / "data/images/odd/color.bmp"
    encoded = caffe_pb2.Datum(data=file.read_bytes(), encoded=True)
    decoded = io.datum_to_array(encoded)
    assert decoded.shape == (3, 11, 14) and decoded.dtype == np.uint8
    np.testing.assert_allclose(decoded[::-1].transpose(1, 2, 0) / 255, io.load_image(file), atol=1e-6)


def test_refusals_of_datums() -> None:
    with pytest.raises(ValueError, match="Incorrect array shape"):
        io.array_to_datum(np.zeros((2, 2)))
    with pytest.raises(CaffeError, match="must have 12 values, not 3"):
        io.datum_to_array(caffe_pb2.Datum(channels=3, height=2, width=2, data=b"abc"))
    with pytest.warns(UserWarning, match=r"arr.transpose\(2, 0, 1\)"):
        io.array_to_datum(np.zeros((8, 9, 3), np.uint8))


# -- Transformer ------------------------------------------------------------------------------------------


def transformer(shape: tuple[int, ...] = (1, 3, 6, 5)) -> io.Transformer:
    return io.Transformer({"data": shape})


def test_each_setting_of_a_transformer_in_its_order(rng: np.random.Generator) -> None:
    image = rng.uniform(size=(6, 5, 3)).astype(np.float32)
    before = image.copy()
    t = transformer()
    np.testing.assert_array_equal(t.preprocess("data", image.reshape(6, 5, 3)), image)
    t.set_transpose("data", (2, 0, 1))
    t.set_channel_swap("data", (2, 1, 0))
    t.set_raw_scale("data", 255)
    t.set_mean("data", np.array([10.0, 20.0, 30.0]))
    t.set_input_scale("data", 0.5)
    ready = t.preprocess("data", image)
    wanted = np.stack([(image[:, :, 2 - c] * 255 - 10 * (c + 1)) * 0.5 for c in range(3)])
    np.testing.assert_allclose(ready, wanted, atol=1e-4)
    assert ready.dtype == np.float32
    np.testing.assert_array_equal(image, before)
    np.testing.assert_allclose(t.deprocess("data", ready), image, atol=1e-6)
    np.testing.assert_allclose(t.deprocess("data", ready[None]), image, atol=1e-6)


def test_a_bare_transformer_leaves_its_array_alone() -> None:
    image = np.ones((6, 5, 3), np.float32)
    t = transformer()
    t.set_raw_scale("data", 2)
    assert t.preprocess("data", image).sum() == 2 * image.size
    assert image.sum() == image.size


def test_settings_are_taken_back_by_none() -> None:
    t = transformer()
    t.set_transpose("data", (2, 0, 1))
    t.set_channel_swap("data", (2, 1, 0))
    t.set_mean("data", np.ones(3))
    t.set_raw_scale("data", 2)
    t.set_input_scale("data", 3)
    for setter in (t.set_transpose, t.set_channel_swap, t.set_mean, t.set_raw_scale, t.set_input_scale):
        setter("data", None)
    image = np.ones((6, 5, 3), np.float32)
    np.testing.assert_array_equal(t.preprocess("data", image), image)


def test_images_of_another_size_are_resized(rng: np.random.Generator) -> None:
    image = rng.uniform(size=(9, 4, 3)).astype(np.float32)
    t = transformer()
    t.set_transpose("data", (2, 0, 1))
    wanted = io.resize_image(image, (6, 5)).transpose(2, 0, 1)
    np.testing.assert_array_equal(t.preprocess("data", image), wanted)


def test_means_of_every_shape(rng: np.random.Generator) -> None:
    image, mean = np.zeros((6, 5, 3), np.float32), rng.uniform(size=(3, 6, 5))
    t = transformer()
    t.set_transpose("data", (2, 0, 1))
    for given in (mean, mean[None]):
        t.set_mean("data", given)
        np.testing.assert_allclose(t.preprocess("data", image), -mean, atol=1e-6)
    t.set_mean("data", mean[0])
    np.testing.assert_allclose(t.preprocess("data", image), -np.stack([mean[0]] * 3), atol=1e-6)
    large = rng.uniform(size=(3, 12, 10))
    t.set_mean("data", large)
    halves = io.resize_image(large.transpose(1, 2, 0), (6, 5)).transpose(2, 0, 1)
    np.testing.assert_allclose(t.preprocess("data", image), -halves, atol=1e-6)


def test_grey_comes_back() -> None:
    t = transformer((1, 1, 2, 3))
    image = np.arange(6, dtype=np.float32).reshape(2, 3, 1)
    np.testing.assert_array_equal(t.deprocess("data", image.transpose(2, 0, 1)), image[:, :, 0])
    t.set_transpose("data", (2, 0, 1))
    np.testing.assert_array_equal(t.deprocess("data", t.preprocess("data", image)), image)


def test_inputs_of_other_numbers_of_axes() -> None:
    """A clip, channels first: only its batch axis is dropped."""
    t = io.Transformer({"clip": (1, 1, 2, 3, 4)})
    t.set_transpose("clip", (3, 0, 1, 2))
    clip = np.arange(24, dtype=np.float32).reshape(1, 1, 2, 3, 4)
    np.testing.assert_array_equal(t.deprocess("clip", clip), clip[0].transpose(1, 2, 3, 0))


@pytest.mark.parametrize(
    ("set", "kind", "words"),
    [
        (lambda t: t.set_raw_scale("dat", 1), CaffeError, r"dat is not one of the net inputs.*mean 'data'"),
        (lambda t: t.preprocess("x", np.zeros((2, 2, 3))), CaffeError, "x is not one of the net inputs"),
        (
            lambda t: t.set_transpose("data", (1, 0)),
            CaffeError,
            "Transpose order needs to have the same number",
        ),
        (lambda t: t.set_transpose("data", (3, 0, 1)), CaffeError, "Transpose order"),
        (
            lambda t: t.set_channel_swap("data", (1, 0)),
            CaffeError,
            "Channel swap needs to have the same number",
        ),
        (lambda t: t.set_channel_swap("data", (2, 1, 3)), CaffeError, "Channel swap"),
        (lambda t: t.set_mean("data", np.ones(2)), ValueError, "Mean channels incompatible with input"),
        (lambda t: t.set_mean("data", np.ones((2, 6, 5))), ValueError, "Mean shape invalid"),
        (lambda t: t.set_mean("data", np.ones((2, 3, 6, 5))), ValueError, "Mean shape invalid"),
        (lambda t: t.set_mean("data", "mean.npy"), ValueError, r"not 'mean.npy'; np.load reads"),
        (lambda t: t.preprocess("data", "a.png"), DataError, "not 'a.png'; caffe.io.load_image"),
        (lambda t: t.deprocess("data", np.zeros((2, 3, 6, 5))), ValueError, r"one item .* \(2, 3, 6, 5\)"),
        (
            lambda t: (
                (t.set_transpose("data", (2, 0, 1)), t.set_channel_swap("data", (2, 1, 0)))
                and t.preprocess("data", np.zeros((6, 5, 1)))
            ),
            ValueError,
            r"channel_swap \(2, 1, 0\) needs more channels than the image of shape \(6, 5, 1\)",
        ),
    ],
)
def test_settings_that_do_not_fit(set, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        set(transformer())
