"""DataTransformer: from images as they are stored to the values that a net reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from google.protobuf.message import DecodeError

from .blob import proto_shape
from .datum import Datum, raw_image
from .errors import DataError
from .image import PlanarCopy, channels_first, decode
from .proto import caffe_pb2

Shape = tuple[int, int, int]

# Up to this many bytes, images are gathered into one array first; beyond, the extra pass costs more
# than handling each image by itself.
_SMALL_IMAGE = 1 << 15


class DataTransformer:
    """top = mirror(crop(image) - crop(mean)) · scale.

    param.crop_size      side of the square cut out, in pixels, 0 for none: at random in TRAIN, from the
                         centre in TEST. Everything is cropped at the place of the image.
    param.mirror         flip left to right, or not, at random (in both phases, as the original)
    param.mean_file      binaryproto with a mean of the size of the images, before cropping
    param.mean_value     one value, or one for each channel; not together with mean_file
    param.scale          factor, default 1
    param.force_color, force_gray   how encoded images are decoded; default: as they are stored

    Raises DataError for a mean that cannot be read or does not fit, contradicting fields, and images
    that are smaller than the crop or of another shape than their batch.
    Source: Caffe's DataTransformer.
    """

    def __init__(self, param: caffe_pb2.TransformationParameter, phase: int):
        if param.mean_file and param.mean_value:
            raise DataError("Cannot specify mean_file and mean_value at the same time")
        if param.force_color and param.force_gray:
            raise DataError("cannot set both force_color and force_gray")
        self.crop_size = param.crop_size
        self.mirror = param.mirror
        self.scale = np.float32(param.scale)
        self.force_color, self.force_gray = param.force_color, param.force_gray
        self._mean_file = param.mean_file
        self._mean: np.ndarray | None = None  # (C, H, W), or (C, 1, 1), or None
        if param.mean_file:
            self._mean = read_mean(param.mean_file)
            self._mirrored_mean = np.ascontiguousarray(self._mean[:, :, ::-1])
        elif param.mean_value:
            self._mean = np.array(param.mean_value, np.float32).reshape(-1, 1, 1)
        self._random_crop = bool(self.crop_size) and phase == caffe_pb2.TRAIN
        self._fitting: set[tuple[int, ...]] = set()

    @property
    def needs_random(self) -> bool:
        """Does transform_batch need random words?"""
        return self.mirror or self._random_crop

    def output_shape(self, shape: Sequence[int]) -> Shape:
        """(C, h, w) that an image of shape (C, H, W) becomes. Raises DataError when it does not fit."""
        channels, height, width = shape
        if shape not in self._fitting:
            self._check_fit(channels, height, width)
            self._fitting.add(tuple(shape))
        return (channels, self.crop_size or height, self.crop_size or width)

    def fits(self, shape: Shape) -> bool:
        """Has output_shape taken an image of this shape?"""
        return shape in self._fitting

    def _check_fit(self, channels: int, height: int, width: int) -> None:
        size = f"{_text((channels, height, width))} (channels x height x width)"
        hint = "; is it stored as height x width x channels?" if width <= 4 < channels else ""
        if self.crop_size > min(height, width):
            raise DataError(f"crop_size (={self.crop_size}) exceeds the image of {size}{hint}")
        if self._mean is None:
            return
        if self._mean_file:
            if self._mean.shape != (channels, height, width):
                raise DataError(
                    f"mean_file '{self._mean_file}' has {_text(self._mean.shape)} values, the image {size}; "
                    "a mean must have the size of the images before cropping: compute it from the same "
                    f"database, or use mean_value{hint}"
                )
        elif self._mean.shape[0] not in (1, channels):
            raise DataError(
                f"Specify either 1 mean_value or as many as channels: {self._mean.shape[0]} given, the image "
                f"is {size}"
            )

    # -- images ---------------------------------------------------------------------------------------

    def image(self, datum: Datum) -> np.ndarray:
        """The image in a datum, (C, H, W), uint8 or float32; a view where possible."""
        return self.decode(datum.data) if datum.encoded else raw_image(datum)

    def decode(self, data: bytes | memoryview) -> np.ndarray:
        """The image in a file's bytes, (C, H, W) uint8, channels blue, green, red as OpenCV has them."""
        color = True if self.force_color else False if self.force_gray else None
        try:
            image = decode(data, color)
        except DataError as error:
            raise DataError(f"Could not decode datum: {error}") from error
        if image.dtype != np.uint8:
            raise DataError(
                f"Image data type must be unsigned byte, not {image.dtype}; set force_color or force_gray, "
                "or store it with 8 bits"
            )
        return channels_first(image)

    @staticmethod
    def is_small(size: int) -> bool:
        """Is it worth while to gather raw images of so many bytes?"""
        return 0 < size <= _SMALL_IMAGE

    @staticmethod
    def gather(datums: Sequence[Datum]) -> np.ndarray | None:
        """The images of a batch as one array (N, C, H, W); None unless all are raw and of one size."""
        first = datums[0]
        if any(d.encoded or d[:3] != first[:3] for d in datums):
            return None
        data = b"".join([d.data for d in datums])
        shape = (len(datums), first.channels, first.height, first.width)
        if len(data) != math.prod(shape):  # some have float_data instead
            return None
        return np.frombuffer(data, np.uint8).reshape(shape)

    # -- batches --------------------------------------------------------------------------------------

    def transform_batch(
        self,
        images: Iterable[np.ndarray] | np.ndarray,
        out: np.ndarray,
        random: np.ndarray | None = None,
        name: Callable[[int], str] = "image {}".format,
    ) -> None:
        """Transform images[i] (C, H, W), any number type, into out[i]; out is (N, C, h, w) float32. Images
        may come from a generator, so that only one of them need be in memory.

        random: (N, 3) uint32 words, which decide about mirroring, row and column; needed if needs_random.
        name: what errors call image i.
        """
        if random is None and self.needs_random:
            raise ValueError("transform_batch: mirror and random crops need random words")
        one_array = isinstance(images, np.ndarray)
        if one_array and (random is None or images[0].nbytes <= _SMALL_IMAGE):
            self._check_same(images.shape[1:], out, 0, name)
            self._transform_all(images, out, random)
            return
        copy = PlanarCopy()
        for i, image in enumerate(images):
            if i == 0 or not one_array:
                self._check_same(image.shape, out, i, name)
            self._transform(image, out[i], None if random is None else random[i].tolist(), copy)

    def _check_same(
        self, shape: tuple[int, ...], out: np.ndarray, i: int, name: Callable[[int], str]
    ) -> None:
        try:
            wanted = self.output_shape(shape)
        except DataError as error:
            raise DataError(f"{name(i)}: {error}") from None
        if wanted != out.shape[1:]:
            cure = "set crop_size, resize them when converting, or use batch_size: 1"
            if wanted[0] != out.shape[1]:
                cure = "set force_color or force_gray, or convert all of them in colour or all in grey"
            raise DataError(
                f"{name(i)} gives {_text(wanted)} values (channels x height x width), but its batch has "
                f"{_text(out.shape[1:])}: images of one batch must agree; {cure}"
            )

    def _centre(self, shape: Sequence[int]) -> tuple[int, int]:
        if not self.crop_size:
            return 0, 0
        return (shape[1] - self.crop_size) // 2, (shape[2] - self.crop_size) // 2

    def _transform_all(self, images: np.ndarray, out: np.ndarray, words: np.ndarray | None) -> None:
        """As _transform for each of images (N, C, H, W), in a few passes over all of them."""
        height, width = out.shape[2:]
        mean = self._mean
        if words is None or not self._random_crop:
            row, column = self._centre(images.shape[1:])
            place = (..., slice(row, row + height), slice(column, column + width))
            np.copyto(out, images[place], casting="unsafe")
            if mean is not None and self._mean_file:
                mean = mean[place]
        else:
            rows = words[:, 1].astype(np.uint64) * (images.shape[2] - height + 1) >> 32
            columns = words[:, 2].astype(np.uint64) * (images.shape[3] - width + 1) >> 32
            cuts = _cuts(images, height, width)[np.arange(len(out)), :, rows, columns]
            np.copyto(out, cuts, casting="unsafe")
            if mean is not None and self._mean_file:
                mean = _cuts(mean, height, width)[:, rows, columns].swapaxes(0, 1)
        if mean is not None:
            np.subtract(out, mean, out=out)
        if self.scale != 1:
            np.multiply(out, self.scale, out=out)
        if words is not None and self.mirror:
            mirrored = np.flatnonzero(words[:, 0] & 1)
            out[mirrored] = out[mirrored, :, :, ::-1]

    def _transform(
        self, image: np.ndarray, out: np.ndarray, words: list[int] | None, copy: PlanarCopy
    ) -> None:
        height, width = out.shape[1:]
        row, column = self._centre(image.shape)
        mirror = False
        if words is not None:
            if self._random_crop:
                row = words[1] * (image.shape[1] - height + 1) >> 32
                column = words[2] * (image.shape[2] - width + 1) >> 32
            mirror = self.mirror and bool(words[0] & 1)
        cut = image[:, row : row + height, column : column + width]
        mean = self._mean_of(height, width, row, column, mirror)
        if image.dtype == np.uint8:
            copy(cut, mirror, out, mean)
        else:
            np.copyto(out, cut[:, :, ::-1] if mirror else cut, casting="unsafe")
            if mean is not None:
                np.subtract(out, mean, out=out)
        if self.scale != 1:
            np.multiply(out, self.scale, out=out)

    def _mean_of(self, height: int, width: int, row: int, column: int, mirror: bool) -> np.ndarray | None:
        """What to subtract from a part of an image that begins at this row and column."""
        mean = self._mean
        if mean is None or not self._mean_file:
            return mean
        if mirror:
            mean, column = self._mirrored_mean, mean.shape[2] - column - width
        return mean[:, row : row + height, column : column + width]


def _cuts(images: np.ndarray, height: int, width: int) -> np.ndarray:
    """[..., row, column] is the part (height, width) of images (..., H, W) that begins there; a view."""
    rows, columns = images.shape[-2:]
    shape = (*images.shape[:-2], rows - height + 1, columns - width + 1, height, width)
    return np.lib.stride_tricks.as_strided(images, shape, (*images.strides, *images.strides[-2:]))


def _text(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


def read_mean(path: str) -> np.ndarray:
    """The mean image (C, H, W), float32, in a binaryproto file. Raises DataError."""
    blob = caffe_pb2.BlobProto()
    try:
        with open(path, "rb") as file:
            blob.ParseFromString(file.read())
    except OSError as error:
        raise DataError(f"cannot read mean_file '{path}': {error.strerror}") from error
    except DecodeError as error:
        raise DataError(f"mean_file '{path}' is no binaryproto (a serialised BlobProto)") from error
    shape = proto_shape(blob)
    while len(shape) > 3 and shape[0] == 1:
        shape = shape[1:]
    values = np.array(blob.double_data or blob.data, np.float32)
    if len(shape) != 3 or min(shape) < 1 or values.size != math.prod(shape):
        raise DataError(
            f"mean_file '{path}' holds {values.size} values of shape {tuple(shape)}, not one image of "
            "channels x height x width"
        )
    return values.reshape(shape)
