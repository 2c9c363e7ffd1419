"""convert_imageset ROOTFOLDER/ LISTFILE DB_NAME: image files into a database of Datums."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass

import click
import numpy as np

from caffe.errors import DataError
from caffe.image import channels_first, decode, encode, read_file, resize
from caffe.image_list import ImageList, read_image_list
from caffe.proto.caffe_pb2 import Datum

from .count_bar import count_bar
from .flags import tool_option
from .in_order import in_order
from .new_databases import NewDatabase, new_databases

log = logging.getLogger("caffe.tools")

_LOG_EVERY = 1000
_NOT_OPENED = "could not be opened"


@dataclass(frozen=True)
class Flags:
    """What was typed, or the defaults."""

    gray: bool
    shuffle: bool
    seed: int | None
    backend: str
    resize_width: int
    resize_height: int
    check_size: bool
    encoded: bool
    encode_type: str
    force: bool
    strict: bool


@click.command("convert_imageset")
@click.argument("rootfolder")
@click.argument("listfile")
@click.argument("db_name")
@tool_option("gray", False, "Read the images as grey, one channel.")
@tool_option("shuffle", False, "Randomly shuffle the order of images and their labels.")
@tool_option(
    "seed",
    None,
    "With -shuffle: the order that belongs to this number, instead of a new one.",
    click.IntRange(0),
)
@tool_option("backend", "lmdb", "The kind of database, lmdb or leveldb.")
@tool_option("resize_width", 0, "Width in pixels that images are resized to; with resize_height.")
@tool_option("resize_height", 0, "Height in pixels that images are resized to; with resize_width.")
@tool_option("check_size", False, "Stop at the first image of another size than the first one's.")
@tool_option("encoded", False, "Store image files (JPEG, PNG ...) instead of pixels.")
@tool_option("encode_type", "", "Store them as files of this type, as 'png' or 'jpg'; implies -encoded.")
@tool_option("force", False, "Replace a database that is there already.")
@tool_option("strict", False, "Write no database unless every image could be read.")
def command(rootfolder: str, listfile: str, db_name: str, **flags: object) -> None:
    """Put the images of LISTFILE into the new database DB_NAME.

    Each line of LISTFILE is a path, a space and an integer label; ROOTFOLDER/ is put before each path as it
    is. An image that cannot be read is skipped, with an error message. The database appears when it is
    complete. Exit status 0 when images were written, 1 when none was or, with -strict, any was skipped.
    """
    convert(rootfolder, listfile, db_name, Flags(**flags))  # type: ignore[arg-type]


def convert(root: str, listfile: str, db_name: str, flags: Flags) -> None:
    """Raises DataError for what cannot be done, and when nothing was written."""
    images = read_image_list(listfile)
    order = np.arange(len(images))
    if flags.shuffle:
        log.info("Shuffling data")
        order = np.random.default_rng(flags.seed).permutation(len(images))
    log.info("A total of %d images.", len(images))
    if flags.encode_type and not flags.encoded:
        log.info("encode_type specified, assuming encoded=true.")
    if bool(max(0, flags.resize_width)) != bool(max(0, flags.resize_height)):
        log.warning("-resize_width and -resize_height work together only: images keep their size")
    with new_databases([db_name], flags.backend, flags.force) as (database,):
        log.info("Opened %s %s", flags.backend.lower(), db_name)
        skipped = _write(images, order, _Reader(root, flags), database)
        total = sum(skipped.values())
        reasons = "; ".join(f"{reason}: {count}" for reason, count in skipped.items())
        if total:
            log.warning("Skipped %d of %d images (%s)", total, len(images), reasons)
        if not database.count:
            hint = ""
            if root and not root.endswith("/") and skipped[_NOT_OPENED]:
                hint = f". ROOTFOLDER is put before each path as it is: did you mean {root}/ ?"
            raise DataError(
                f"no image was written, so {db_name} was not made: {listfile} lists {len(images)}{hint}"
            )
        if total and flags.strict:
            raise DataError(
                f"-strict: {total} of {len(images)} images were skipped, so {db_name} was not made"
            )


def _write(images: ImageList, order: np.ndarray, reader: _Reader, database: NewDatabase) -> Counter[str]:
    """Writes what can be read, in this order; returns how many could not, by reason."""
    skipped: Counter[str] = Counter()
    with count_bar(len(order), "images") as show:
        for n, (i, result) in enumerate(in_order(order.tolist(), lambda i: reader.read(images, i))):
            show(n)
            if isinstance(result, _Unreadable):
                log.error("%s", result.message)
                skipped[result.reason] += 1
                continue
            reader.check(result, images.place(i))
            database.put(f"{n:08d}_{images.paths[i]}", result.datum)
            if database.count % _LOG_EVERY == 0:
                log.info("Processed %d files.", database.count)
    if database.count % _LOG_EVERY:
        log.info("Processed %d files.", database.count)
    return skipped


@dataclass(frozen=True)
class _Read:
    """A serialised Datum; shape: of the image."""

    datum: bytes
    shape: tuple[int, ...]


@dataclass(frozen=True)
class _Unreadable:
    message: str
    reason: str


class _Reader:
    """Makes Datums of files, as the flags want them."""

    def __init__(self, root: str, flags: Flags):
        self._root, self._flags = root, flags
        self._encoded = flags.encoded or bool(flags.encode_type)
        self._height, self._width = max(0, flags.resize_height), max(0, flags.resize_width)
        self._size: tuple[int, ...] | None = None
        self._warned = False

    def read(self, images: ImageList, i: int) -> _Read | _Unreadable:
        path = self._root + images.paths[i]
        try:
            data = read_file(path)
        except DataError as error:
            return _Unreadable(str(error), _NOT_OPENED)
        try:
            image = resize(decode(data, not self._flags.gray), self._height, self._width)
        except DataError as error:
            return _Unreadable(f"Could not load {path}: {error}", "could not be decoded")
        datum = Datum(label=int(images.labels[i]), encoded=self._encoded)
        if self._encoded:
            datum.data = self._file(path, data, image)
        else:
            planes = channels_first(image)
            datum.channels, datum.height, datum.width = planes.shape
            datum.data = planes.tobytes()
        return _Read(datum.SerializeToString(), image.shape)

    def _file(self, path: str, data: bytes, image: np.ndarray) -> bytes:
        """The image as a file; the original's bytes where it is of the wanted type and size already."""
        kind = self._flags.encode_type
        ending = path[path.rfind(".") + 1 :].lower()
        if not kind:
            if "." not in path:
                log.warning("Failed to guess the encoding of '%s'", path)
            kind = ending
        same = ending == kind.lower() or (ending == "jpeg" and kind.lower() == "jpg")
        if same and not (self._height and self._width):
            if self._flags.gray and not self._warned:
                self._warned = True
                log.warning(
                    "Files that are '%s' already are stored as they are, with -gray too: set force_gray: "
                    "true in the transform_param of the layer that reads them",
                    kind,
                )
            return data
        try:
            return encode(image, kind)
        except DataError as error:
            raise DataError(f"{path}: {error}") from error

    def check(self, image: _Read, place: str) -> None:
        """Raises DataError where -check_size forbids the size."""
        if not self._flags.check_size:
            return
        if self._size is None:
            self._size = image.shape
        if image.shape != self._size:
            raise DataError(
                f"{place}: Incorrect data field size {int(np.prod(image.shape))}: an image of "
                f"{_text(image.shape)}, and the first one has {_text(self._size)}. -resize_height and "
                "-resize_width make them alike"
            )


def _text(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} x {shape[0]} pixels, {shape[2] if len(shape) > 2 else 1} channel(s)"
