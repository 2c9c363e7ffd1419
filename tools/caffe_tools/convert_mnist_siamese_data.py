"""convert_mnist_siamese_data IMAGES LABELS DB_NAME: random pairs of MNIST's digits in a database."""

from __future__ import annotations

import logging
from pathlib import Path

import click
import numpy as np

from .flags import tool_option
from .mnist import read_pair, siamese_records
from .new_databases import write_databases

log = logging.getLogger("caffe.tools")


@click.command("convert_mnist_siamese_data")
@click.argument("image_file", type=click.Path(path_type=Path))
@click.argument("label_file", type=click.Path(path_type=Path))
@click.argument("db_file", type=click.Path(path_type=Path))
@tool_option("backend", "leveldb", "The kind of database, leveldb or lmdb.")
@tool_option(
    "seed", None, "Draw the pairs that belong to this number, instead of new ones.", click.IntRange(0)
)
@tool_option("force", False, "Replace a database that is there already.")
def command(
    image_file: Path, label_file: Path, db_file: Path, backend: str, seed: int | None, force: bool
) -> None:
    """Put as many random pairs as IMAGE_FILE has digits into the new database DB_FILE.

    A pair is one image of two channels; its label is 1 where LABEL_FILE gives both the same class, else 0.
    Both are files of MNIST or in its format (idx-ubyte), as they are or gzipped.
    """
    images, labels = read_pair(image_file, label_file)
    log.info("A total of %d items.", len(images))
    log.info("Rows: %d Cols: %d", *images.shape[1:])
    records = siamese_records(images, labels, np.random.default_rng(seed))
    (count,) = write_databases({db_file: records}, backend, force).values()
    log.info("Wrote %d pairs to %s", count, db_file)
