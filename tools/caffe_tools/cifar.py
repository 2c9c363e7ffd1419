"""CIFAR-10's files of the binary version."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

import numpy as np

from caffe.errors import DataError
from caffe.proto.caffe_pb2 import Datum

SIDE = 32
CLASSES = 10
PER_FILE = 10_000
TRAIN_FILES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST_FILES = ("test_batch.bin",)
FOLDER = "cifar-10-batches-bin"
ARCHIVE = "cifar-10-binary.tar.gz"

_RECORD = 1 + 3 * SIDE * SIDE  # the label, then red, green and blue, each row by row


def find(folder: Path) -> Path | None:
    """What holds the six files: folder, the folder cifar-10-batches-bin in it, or the archive in it; None
    when there is none of them."""
    for place in (folder, folder / FOLDER):
        if (place / TRAIN_FILES[0]).exists():
            return place
    archive = folder / ARCHIVE
    return archive if archive.exists() else None


def read_files(place: Path, names: Sequence[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(images (N, 3, 32, 32) in RGB, labels (N,)), uint8, of each file in a folder or in the archive.

    Raises DataError for what is missing, truncated or no CIFAR-10.
    """
    try:
        if place.is_dir():
            for name in names:
                yield _parse((place / name).read_bytes(), place / name)
        else:
            unpacked = _unpack(place, set(names))
            for name in names:
                if name not in unpacked:
                    raise DataError(f"{place}: {FOLDER}/{name} is not in it")
                yield _parse(unpacked.pop(name), place / name)
    except (EOFError, tarfile.TarError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{place}: damaged or truncated archive ({error}); get it again") from error
    except OSError as error:
        raise DataError(f"cannot read {error.filename or place}: {error.strerror or error}") from error


def _unpack(archive: Path, names: Container[str]) -> dict[str, bytes]:
    """The content of the named files, read in one pass up to gzip's checksum at the very end."""
    found = {}
    with gzip.open(archive) as packed:
        with tarfile.open(fileobj=packed, mode="r|") as members:
            for member in members:
                folder, _, name = member.name.rpartition("/")
                file = members.extractfile(member) if folder == FOLDER and name in names else None
                if file is not None:
                    # One byte too many is enough to tell that it is another file.
                    found[name] = file.read(PER_FILE * _RECORD + 1)
        while packed.read(1 << 20):
            pass
    return found


def _parse(data: bytes, path: Path) -> tuple[np.ndarray, np.ndarray]:
    if len(data) != PER_FILE * _RECORD:
        raise DataError(
            f"{path}: {len(data)} bytes, but {PER_FILE} images of CIFAR-10 take {PER_FILE * _RECORD}: it is "
            "truncated or another file"
        )
    rows = np.frombuffer(data, np.uint8).reshape(PER_FILE, _RECORD)
    labels = rows[:, 0]
    if labels.max() >= CLASSES:
        first = int(np.argmax(labels >= CLASSES))
        raise DataError(f"{path}: image {first} has label {labels[first]}; CIFAR-10's are 0 to {CLASSES - 1}")
    return rows[:, 1:].reshape(PER_FILE, 3, SIDE, SIDE), labels


def records(files: Iterator[tuple[np.ndarray, np.ndarray]]) -> Iterator[tuple[str, Datum]]:
    """(key, Datum) of each image with its label, in their order."""
    count = 0
    for images, labels in files:
        for image, label in zip(images, labels.tolist(), strict=True):
            yield (
                f"{count:05d}",
                Datum(channels=3, height=SIDE, width=SIDE, label=label, data=image.tobytes()),
            )
            count += 1
