"""compute_image_mean INPUT_DB [OUTPUT_FILE]: the mean of a database's images."""

from __future__ import annotations

import logging

import click
import numpy as np

from caffe.atomic_file import atomic_write
from caffe.datasets import resolve_source
from caffe.db import DB, detect_backend, open_db
from caffe.errors import DataError
from caffe.proto import caffe_pb2

from .count_bar import count_bar
from .db_records import read_records
from .flags import tool_option
from .signals import end_cleanly

log = logging.getLogger("caffe.tools")

_LOG_EVERY = 10_000


@click.command("compute_image_mean")
@click.argument("input_db")
@click.argument("output_file", required=False)
@tool_option("backend", "", "The kind of database, lmdb or leveldb (default: what is there).")
def command(input_db: str, output_file: str | None, backend: str) -> None:
    """Compute the mean image of INPUT_DB, log the mean of each channel, and write it to OUTPUT_FILE.

    OUTPUT_FILE is a binaryproto for transform_param's mean_file. All images must be of one size.
    """
    source = resolve_source(input_db)
    with open_db(source, backend or detect_backend(source) or "lmdb") as db:
        log.info("Opened %s %s", db.backend.lower(), input_db)
        if output_file:
            mean = _write(db, output_file)
        else:
            mean = compute(db)
    log.info("Number of channels: %d", len(mean))
    for i, channel in enumerate(mean):
        log.info("mean_value channel [%d]: %g", i, channel.mean(dtype=np.float64))


def _write(db: DB, path: str) -> np.ndarray:
    """Computes the mean and writes it to path; a path that cannot be written is found out first."""
    try:
        with end_cleanly(), atomic_write(path) as file:
            mean = compute(db)
            log.info("Write to %s", path)
            channels, height, width = mean.shape
            blob = caffe_pb2.BlobProto(num=1, channels=channels, height=height, width=width)
            blob.data.extend(mean.ravel())
            file.write(blob.SerializeToString())
    except OSError as error:
        raise DataError(f"cannot write '{path}': {error.strerror or error}") from error
    return mean


def compute(db: DB) -> np.ndarray:
    """The mean image (C, H, W), float32. Raises DataError that names the record at fault."""
    total = np.zeros(0)
    count = 0
    with count_bar(db.entries, "images") as show:
        for record in read_records(db):
            image = record.image
            if image is None or image.dtype not in (np.uint8, np.float32):
                why = record.fault or "Image data type must be unsigned byte; store images with 8 bits"
                raise DataError(f"record '{record.name}': {why}")
            if not count:
                if record.datum is not None and record.datum.encoded:
                    log.info("Decoding Datum")
                log.info("Starting iteration")
                # Bytes are summed exactly, other values in double precision.
                total = np.zeros(image.shape, np.int64 if image.dtype == np.uint8 else np.float64)
            elif image.shape != total.shape:
                raise DataError(
                    f"record '{record.name}': Incorrect data field size {image.size}: an image of "
                    f"{_text(image)}, and the first one has {_text(total)}; a mean needs images of one size "
                    "(convert them with -resize_height and -resize_width)"
                )
            elif image.dtype != np.uint8:
                total = total.astype(np.float64, copy=False)
            np.add(total, image, out=total)
            count += 1
            show(count)
            if count % _LOG_EVERY == 0:
                log.info("Processed %d files.", count)
    if not count:
        raise DataError(f"{db.backend} '{db.source}' has no records, so there is no mean")
    if count % _LOG_EVERY:
        log.info("Processed %d files.", count)
    return (total / count).astype(np.float32)


def _text(image: np.ndarray) -> str:
    return f"{' x '.join(map(str, image.shape))} (channels x height x width)"
