"""MNIST's files, and databases of them: digits with labels, and pairs of digits for siamese nets."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from caffe.errors import DataError
from caffe.proto.caffe_pb2 import Datum

_GZIP = b"\x1f\x8b"
_UINT8 = 0x08
_KINDS = {1: "label", 3: "image"}  # by the number of axes


def read_images(path: Path) -> np.ndarray:
    """The images (N, H, W), uint8, of an idx3-ubyte file, which may be gzipped. Raises DataError."""
    return _read_idx(path, 3)


def read_labels(path: Path) -> np.ndarray:
    """The labels (N,), uint8, of an idx1-ubyte file, which may be gzipped. Raises DataError."""
    return _read_idx(path, 1)


def read_pair(images: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images and as many labels. Raises DataError, also when the numbers differ."""
    pixels, classes = read_images(images), read_labels(labels)
    if len(pixels) != len(classes):
        raise DataError(f"{images} has {len(pixels)} images, but {labels} has {len(classes)} labels")
    return pixels, classes


def _read_idx(path: Path, axes: int) -> np.ndarray:
    """Source of the format: two zero bytes, the type, the number of axes, each axis as a big-endian
    uint32, the values (LeCun, Cortes, Burges: The MNIST database)."""
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == _GZIP
        with gzip.open(path, "rb") if packed else open(path, "rb") as file:
            return _parse_idx(file, path, axes)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: damaged or truncated gzip file ({error}); get it again") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def _parse_idx(file: gzip.GzipFile | BinaryIO, path: Path, axes: int) -> np.ndarray:
    magic = bytes((0, 0, _UINT8, axes))
    head = file.read(4 + 4 * axes)
    if head[:4] != magic:
        kind = _KINDS[axes]
        raise DataError(
            f"{path}: Incorrect {kind} file magic. An idx{axes}-ubyte file begins with the bytes "
            f"{magic.hex(' ')}, this one with {head[:4].hex(' ') or 'nothing'}"
        )
    if len(head) < 4 + 4 * axes:
        raise DataError(f"{path}: truncated: it ends within its header")
    shape = tuple(int(n) for n in np.frombuffer(head, ">u4", offset=4))
    if not shape[0]:
        raise DataError(f"{path}: it holds no {_KINDS[axes]}s")
    if min(shape[1:], default=1) < 1:
        raise DataError(f"{path}: images of {shape[1]} x {shape[2]} pixels")
    size = int(np.prod(shape, dtype=object))
    # A damaged header may promise any size: memory follows what is really there.
    data = bytearray()
    while len(data) <= size and (part := file.read(min(size + 1 - len(data), 1 << 24))):
        data += part
    if len(data) != size:
        more = "more than " if len(data) > size else f"only {len(data)} of "
        raise DataError(
            f"{path}: its header says {' x '.join(map(str, shape))}, but there are {more}{size} bytes of "
            "data: it is truncated or damaged; get it again"
        )
    return np.frombuffer(data, np.uint8).reshape(shape)


def digit_records(images: np.ndarray, labels: np.ndarray) -> Iterator[tuple[str, Datum]]:
    """(key, Datum) of each image (N, H, W) with its label, in their order."""
    _, height, width = images.shape
    for i, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        yield (
            f"{i:08d}",
            Datum(channels=1, height=height, width=width, label=label, data=image.tobytes()),
        )


def siamese_records(
    images: np.ndarray, labels: np.ndarray, rng: np.random.Generator
) -> Iterator[tuple[str, Datum]]:
    """(key, Datum) of as many pairs as there are images, each drawn at random; two channels, one per image;
    label 1 where both show the same class, else 0."""
    count, height, width = images.shape
    for n, (i, j) in enumerate(rng.integers(count, size=(count, 2)).tolist()):
        pair = images[i].tobytes() + images[j].tobytes()
        same = int(labels[i] == labels[j])
        yield f"{n:08d}", Datum(channels=2, height=height, width=width, label=same, data=pair)
