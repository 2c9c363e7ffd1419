"""caffe.io: images for a net, and arrays as messages.

An image here is float32, (H, W, C) in the order red, green, blue, with values in [0, 1]; a net's input is
(C, H, W). `Transformer` leads from one to the other. Source: pycaffe's io.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from . import image as image_files
from . import interpolation
from .blob import proto_shape
from .errors import DataError, ShapeError, closest
from .proto import caffe_pb2 as caffe_pb2

# -- arrays as messages -----------------------------------------------------------------------------------


def blobproto_to_array(blob: caffe_pb2.BlobProto, return_diff: bool = False) -> np.ndarray:
    """The values (or, with return_diff, the gradient) of a BlobProto, float64, in its shape.

    Raises BlobShapeError when there are not as many values as the shape says.
    """
    values = (blob.double_diff or blob.diff) if return_diff else (blob.double_data or blob.data)
    array, shape = np.array(values, np.float64), proto_shape(blob)
    if array.size != math.prod(shape):
        part = "diff" if return_diff else "data"
        raise BlobShapeError(
            f"a BlobProto of shape {shape} must hold {math.prod(shape)} {part}, not {array.size}"
        )
    return array.reshape(shape)


def array_to_blobproto(arr: np.ndarray, diff: np.ndarray | None = None) -> caffe_pb2.BlobProto:
    """A BlobProto with this array as data and, if given, another of the same size as diff.
    Raises BlobShapeError for one of another size."""
    arr = np.asarray(arr)
    blob = caffe_pb2.BlobProto()
    blob.shape.dim.extend(arr.shape)
    blob.data.extend(arr.astype(np.float64).ravel())
    if diff is not None:
        if np.size(diff) != arr.size:
            raise BlobShapeError(f"the diff has {np.size(diff)} values, the data {arr.size}")
        blob.diff.extend(np.asarray(diff).astype(np.float64).ravel())
    return blob


def arraylist_to_blobprotovector_str(arraylist: Iterable[np.ndarray]) -> bytes:
    """Arrays as one serialised BlobProtoVector."""
    vector = caffe_pb2.BlobProtoVector()
    vector.blobs.extend(array_to_blobproto(array) for array in arraylist)
    return vector.SerializeToString()


def blobprotovector_str_to_arraylist(str: bytes) -> list[np.ndarray]:
    """The arrays of a serialised BlobProtoVector. Raises DataError for other bytes."""
    try:
        vector = caffe_pb2.BlobProtoVector.FromString(str)
    except DecodeError as error:
        raise DataError(f"these {len(str)} bytes are no BlobProtoVector: {error}") from error
    return [blobproto_to_array(blob) for blob in vector.blobs]


def array_to_datum(arr: np.ndarray, label: int | None = None) -> caffe_pb2.Datum:
    """A Datum of (C, H, W): uint8 as bytes, any other type as float_data.

    Warns of what looks like (H, W, C). Raises DatumShapeError for other than three axes.
    """
    arr = np.asarray(arr)
    if arr.ndim != 3:
        raise DatumShapeError(
            f"Incorrect array shape: a Datum is (channels, height, width), but the array is {arr.shape}"
        )
    if arr.shape[2] in (1, 3, 4) and min(arr.shape[:2]) > 4:
        warnings.warn(
            f"a Datum is (channels, height, width), and this array of shape {arr.shape} looks like "
            "(height, width, channels): use arr.transpose(2, 0, 1)",
            stacklevel=2,
        )
    datum = caffe_pb2.Datum()
    datum.channels, datum.height, datum.width = arr.shape
    if arr.dtype == np.uint8:
        datum.data = arr.tobytes()
    else:
        datum.float_data.extend(arr.astype(np.float64).ravel())
    if label is not None:
        datum.label = int(label)
    return datum


def datum_to_array(datum: caffe_pb2.Datum) -> np.ndarray:
    """The pixels of a Datum, (C, H, W): uint8, or float64 from float_data. An encoded image is decoded, its
    channels in the order blue, green, red, as a Data layer has it. Raises DataError."""
    if datum.encoded:
        return np.ascontiguousarray(image_files.channels_first(image_files.decode(datum.data, None)))
    if datum.data:
        values = np.frombuffer(datum.data, np.uint8).copy()
    else:
        values = np.array(datum.float_data, np.float64)
    shape = (datum.channels, datum.height, datum.width)
    if values.size != math.prod(shape):
        raise DatumShapeError(
            f"a Datum of shape {shape} must have {math.prod(shape)} values, not {values.size}"
        )
    return values.reshape(shape)


class BlobShapeError(ShapeError, ValueError):
    """A BlobProto whose amount of data is not that of its shape."""


class DatumShapeError(DataError, ValueError):
    """An array that is no Datum, or a Datum whose amount of data is not that of its dimensions."""


# -- images -----------------------------------------------------------------------------------------------

# What grey is made of, as scikit-image has it: the luminance of red, green and blue.
_LUMINANCE = np.array([0.2125, 0.7154, 0.0721], np.float32)


def load_image(filename: str | Path, color: bool = True) -> np.ndarray:
    """The image of a file, float32: (H, W, 3) in [0, 1], red first; with color=False (H, W, 1).

    Grey images get three equal channels, alpha is left out, orientation by EXIF is not applied (all as in
    the original). Raises DataError.
    """
    path = str(filename)
    data = image_files.read_file(path)
    try:
        pixels = image_files.decode(data, None)
    except DataError as error:
        raise DataError(f"Could not load {path}: {error}") from error
    values = _unit_range(pixels)
    if values.ndim == 2:
        return np.repeat(values[:, :, None], 3 if color else 1, axis=2)
    values = np.ascontiguousarray(values[:, :, 2::-1])  # blue, green, red (, alpha)
    return values if color else (values @ _LUMINANCE)[:, :, None]


def _unit_range(pixels: np.ndarray) -> np.ndarray:
    if pixels.dtype.kind == "u":
        return pixels.astype(np.float32) / np.float32(np.iinfo(pixels.dtype).max)
    return pixels.astype(np.float32)


def resize_image(im: np.ndarray, new_dims: Sequence[int] | np.ndarray, interp_order: int = 1) -> np.ndarray:
    """(H, W, C) resized to new_dims = (height, width), float32. interp_order: 1 bilinear, 0 nearest, 2 to 5
    splines (with 1 or 3 channels 3 is bicubic).

    The numbers are those of the original with the scikit-image (1 or 3 channels) and SciPy (any other
    number) of its day: nothing is smoothed before it shrinks. Raises DataError.
    """
    im = _image(im)
    height, width = _height_width(new_dims, "resize_image: new_dims")
    values = im if im.dtype == np.float64 else im.astype(np.float32)
    if im.shape[2] in (1, 3):
        resized = interpolation.resize_image_like(values, height, width, interp_order)
    else:
        resized = interpolation.zoom_array(values, height, width, interp_order)
    return resized.astype(np.float32, copy=False)


def _numbers(im: Any) -> np.ndarray:
    values = np.asarray(im)
    if values.dtype.kind not in "fiub":
        raise DataError(f"an image is an array of numbers, not {im!r:.40}; caffe.io.load_image reads a file")
    return values


def _image(im: Any) -> np.ndarray:
    """What is to be an image (H, W, C). Raises DataError for anything else."""
    values = _numbers(im)
    if values.ndim != 3 or 0 in values.shape:
        grey = ". A grey one is im[:, :, np.newaxis]" if values.ndim == 2 else ""
        raise DataError(f"an image is (height, width, channels), not of shape {values.shape}{grey}")
    return values


def _height_width(dims: Any, what: str) -> tuple[int, int]:
    sizes = np.asarray(dims)
    if sizes.shape[:1] < (2,) or sizes.dtype.kind not in "fiu" or not (sizes[:2] >= 1).all():
        raise DataError(f"{what} must be (height, width), 1 or more each, not {dims}")
    return int(sizes[0]), int(sizes[1])


def oversample(images: Sequence[np.ndarray], crop_dims: Sequence[int] | np.ndarray) -> np.ndarray:
    """Ten crops of each image: top left, top right, bottom left, bottom right, middle; then these mirrored.

    images: (H, W, C), all of one size. crop_dims: (height, width). Returns (10·N, height, width, C) float32.
    Raises DataError when the crop is larger than the images, or these differ in size.
    """
    height, width = _height_width(crop_dims, "oversample: crop_dims")
    whole = np.stack([np.asarray(im, np.float32) for im in _of_one_size(images)])
    spare = whole.shape[1] - height, whole.shape[2] - width
    if min(spare) < 0:
        raise DataError(f"oversample: crops of {height} x {width} do not fit images of {whole.shape[1:3]}")
    corners = [(0, 0), (0, spare[1]), (spare[0], 0), spare, (spare[0] // 2, spare[1] // 2)]
    crops = np.stack([whole[:, y : y + height, x : x + width] for y, x in corners], axis=1)
    both = np.concatenate([crops, crops[:, :, :, ::-1]], axis=1)  # (N, 10, height, width, C)
    return both.reshape(-1, height, width, whole.shape[3])


def _of_one_size(images: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    shapes = {np.shape(im) for im in images}
    if len(shapes) != 1 or len(next(iter(shapes))) != 3:
        raise DataError(
            f"oversample takes images (height, width, channels) of one size, not {sorted(shapes) or 'none'}"
        )
    return images


class Transformer:
    """Between images as load_image gives them and the inputs of a net.

        transformer = caffe.io.Transformer({"data": net.blobs["data"].data.shape})
        transformer.set_transpose("data", (2, 0, 1))       # channels first
        transformer.set_channel_swap("data", (2, 1, 0))    # blue, green, red
        transformer.set_raw_scale("data", 255)             # values in [0, 255]
        transformer.set_mean("data", mean)                 # subtracted, after raw_scale
        net.blobs["data"].data[...] = transformer.preprocess("data", image)

    inputs: {input name: its shape, (N, C, H, W)}. Each setter is for one input and may be left out; None
    takes a setting back. The order of work: resize, transpose, channel_swap, raw_scale, mean, input_scale.
    """

    def __init__(self, inputs: Mapping[str, Sequence[int]]):
        self.inputs: dict[str, tuple[int, ...]] = {
            name: tuple(int(d) for d in shape) for name, shape in inputs.items()
        }
        self.transpose: dict[str, Sequence[int]] = {}
        self.channel_swap: dict[str, Sequence[int]] = {}
        self.raw_scale: dict[str, float] = {}
        self.mean: dict[str, np.ndarray] = {}
        self.input_scale: dict[str, float] = {}

    def _check_input(self, in_: str) -> None:
        if in_ not in self.inputs:
            raise DataError(
                f"{in_} is not one of the net inputs: {[*self.inputs]}{closest(in_, self.inputs)}"
            )

    def preprocess(self, in_: str, data: np.ndarray) -> np.ndarray:
        """The input of the net for an image (H, W, C), float32, in an array of its own."""
        self._check_input(in_)
        values = _numbers(data).astype(np.float32)
        size = self.inputs[in_][2:]
        if values.shape[:2] != size:
            values = resize_image(values, size)
        if self.transpose.get(in_) is not None:
            values = values.transpose(self.transpose[in_])
        if self.channel_swap.get(in_) is not None:
            order = list(self.channel_swap[in_])
            if max(order) >= len(values):
                raise TransformerError(
                    f"channel_swap {tuple(order)} needs more channels than the image of shape "
                    f"{np.shape(data)} has; caffe.io.load_image gives three of a grey file"
                )
            values = values[order]
        if self.raw_scale.get(in_) is not None:
            values *= self.raw_scale[in_]
        if self.mean.get(in_) is not None:
            values -= self.mean[in_]
        if self.input_scale.get(in_) is not None:
            values *= self.input_scale[in_]
        return values

    def deprocess(self, in_: str, data: np.ndarray) -> np.ndarray:
        """The image (H, W, C) that preprocess (but for resizing) would make this input of; a batch axis of
        length 1 is dropped."""
        self._check_input(in_)
        values, axes = np.array(data, np.float32), len(self.inputs[in_]) - 1
        while values.ndim > axes and len(values) == 1:
            values = values[0]
        if values.ndim > axes:
            raise TransformerError(
                f"deprocess takes one item of input {in_!r}, not an array of shape {np.shape(data)}"
            )
        if self.input_scale.get(in_) is not None:
            values /= self.input_scale[in_]
        if self.mean.get(in_) is not None:
            values += self.mean[in_]
        if self.raw_scale.get(in_) is not None:
            values /= self.raw_scale[in_]
        if self.channel_swap.get(in_) is not None:
            values = values[np.argsort(self.channel_swap[in_])]
        if self.transpose.get(in_) is not None:
            return values.transpose(np.argsort(self.transpose[in_]))
        return values.squeeze()

    def set_transpose(self, in_: str, order: Sequence[int] | None) -> None:
        """The order of axes: (2, 0, 1) makes (H, W, C) to (C, H, W)."""
        self._check_input(in_)
        axes = len(self.inputs[in_]) - 1
        if order is not None and sorted(order) != list(range(axes)):
            raise TransformerError(
                "Transpose order needs to have the same number of dimensions as the input: "
                f"input {in_!r} has {axes} beside the batch, the order is {tuple(order)}"
            )
        _set(self.transpose, in_, order)

    def set_channel_swap(self, in_: str, order: Sequence[int] | None) -> None:
        """The order of channels, after transposing: (2, 1, 0) makes red, green, blue to blue, green, red."""
        self._check_input(in_)
        channels = self.inputs[in_][1]
        if order is not None and (
            len(order) != channels or not all(-channels <= i < channels for i in order)
        ):
            raise TransformerError(
                "Channel swap needs to have the same number of dimensions as the input channels: "
                f"input {in_!r} has {channels}, the order is {tuple(order)}"
            )
        _set(self.channel_swap, in_, order)

    def set_raw_scale(self, in_: str, scale: float | None) -> None:
        """Factor before the mean is subtracted: 255 for nets that were trained on bytes."""
        self._check_input(in_)
        _set(self.raw_scale, in_, scale)

    def set_mean(self, in_: str, mean: np.ndarray | None) -> None:
        """What is subtracted: a value for each channel, or an array (C, H, W) or (H, W), also with an axis of
        length 1 before. One of another height and width is resized. In the net's order of channels."""
        self._check_input(in_)
        if mean is None:
            _set(self.mean, in_, None)
            return
        values = np.asarray(mean)
        if values.dtype.kind not in "fiub":
            raise TransformerError(f"a mean is an array of numbers, not {mean!r:.60}; np.load reads a .npy")
        channels, *size = self.inputs[in_][1:]
        if values.ndim == 1:
            if len(values) != channels:
                raise TransformerError(
                    f"Mean channels incompatible with input: {len(values)}, but input {in_!r} has {channels}"
                )
            self.mean[in_] = values.reshape(-1, *(1,) * len(size))
            return
        while values.ndim > 3 and len(values) == 1:
            values = values[0]
        if values.ndim == 2:
            values = values[None]
        if values.ndim != 3 or len(values) not in (1, channels):
            raise TransformerError(
                f"Mean shape invalid: {values.shape}; input {in_!r} is {(channels, *size)} beside the batch"
            )
        if list(values.shape[1:]) != size:
            values = resize_image(values.transpose(1, 2, 0), size).transpose(2, 0, 1)
        self.mean[in_] = values

    def set_input_scale(self, in_: str, scale: float | None) -> None:
        """Factor after the mean is subtracted."""
        self._check_input(in_)
        _set(self.input_scale, in_, scale)

    def __repr__(self) -> str:
        return f"<caffe.io.Transformer of {self.inputs}>"


class TransformerError(DataError, ValueError):
    """A setting that does not fit the input."""


def _set(settings: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        settings.pop(name, None)
    else:
        settings[name] = value
