"""compute_image_mean INPUT_DB [OUTPUT_FILE]: the mean of a database's images."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain

import click
import numpy as np

from caffe.atomic_file import atomic_write
from caffe.data_transformer import DataTransformer
from caffe.datasets import resolve_source
from caffe.datum import Datum, DatumParser
from caffe.db import DB, open_db
from caffe.errors import DataError
from caffe.proto import caffe_pb2

from .count_bar import count_bar
from .flags import tool_option
from .in_order import in_order

log = logging.getLogger("caffe.tools")

_LOG_EVERY = 10_000


@click.command("compute_image_mean")
@click.argument("input_db")
@click.argument("output_file", required=False)
@tool_option("backend", "lmdb", "The kind of database, lmdb or leveldb.")
def command(input_db: str, output_file: str | None, backend: str) -> None:
    """Compute the mean image of INPUT_DB, log the mean of each channel, and write it to OUTPUT_FILE.

    OUTPUT_FILE is a binaryproto for transform_param's mean_file. All images must be of one size.
    """
    source = resolve_source(input_db)
    with open_db(source, backend) as db:
        log.info("Opened %s %s", backend.lower(), input_db)
        mean = compute(db)
    if output_file:
        log.info("Write to %s", output_file)
        _write(mean, output_file)
    log.info("Number of channels: %d", len(mean))
    for i, channel in enumerate(mean):
        log.info("mean_value channel [%d]: %g", i, channel.mean(dtype=np.float64))


def compute(db: DB) -> np.ndarray:
    """The mean image (C, H, W), float32. Raises DataError that names the record at fault."""
    total = np.zeros(0)
    count = 0
    images = _images(db)
    log.info("Starting iteration")
    with count_bar(db.entries, "images") as show:
        for key, image in images:
            if not count:
                # Bytes are summed exactly, other values in double precision.
                total = np.zeros(image.shape, np.int64 if image.dtype == np.uint8 else np.float64)
            elif image.shape != total.shape:
                raise DataError(
                    f"record {key!r}: Incorrect data field size {image.size}: an image of {_text(image)}, "
                    f"and the first one has {_text(total)}; a mean needs images of one size (convert them "
                    "with -resize_height and -resize_width)"
                )
            elif image.dtype != np.uint8:
                total = total.astype(np.float64, copy=False)
            np.add(total, image, out=total)
            count += 1
            show(count)
            if count % _LOG_EVERY == 0:
                log.info("Processed %d files.", count)
    if count % _LOG_EVERY:
        log.info("Processed %d files.", count)
    return (total / count).astype(np.float32)


def _images(db: DB) -> Iterator[tuple[bytes, np.ndarray]]:
    """(key, image (C, H, W)) of all records; encoded ones are decoded as they are stored, by several threads.
    Raises DataError when there is none."""
    datums = _datums(db)
    first = next(datums, None)
    if first is None:
        raise DataError(f"{db.backend} '{db.source}' has no records, so there is no mean")
    transformer = DataTransformer(caffe_pb2.TransformationParameter(), caffe_pb2.TEST)

    def image(record: tuple[bytes, Datum]) -> tuple[bytes, np.ndarray]:
        key, datum = record
        try:
            return key, transformer.image(datum)
        except DataError as error:
            raise DataError(f"record {key!r}: {error}") from error

    if first[1].encoded:
        log.info("Decoding Datum")
        return (result for _, result in in_order(chain([first], datums), image))
    return map(image, chain([first], datums))


def _datums(db: DB) -> Iterator[tuple[bytes, Datum]]:
    parser = DatumParser()
    cursor = db.cursor()
    while cursor.valid():
        key = cursor.key()
        try:
            yield key, parser.parse(cursor.value())
        except DataError as error:
            raise DataError(f"record {key!r}: {error}") from error
        cursor.next()


def _write(mean: np.ndarray, path: str) -> None:
    channels, height, width = mean.shape
    blob = caffe_pb2.BlobProto(num=1, channels=channels, height=height, width=width)
    blob.data.extend(mean.ravel())
    try:
        with atomic_write(path) as file:
            file.write(blob.SerializeToString())
    except OSError as error:
        raise DataError(f"cannot write '{path}': {error.strerror or error}") from error


def _text(image: np.ndarray) -> str:
    return f"{' x '.join(map(str, image.shape))} (channels x height x width)"
