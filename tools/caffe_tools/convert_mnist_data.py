"""convert_mnist_data IMAGES LABELS DB_NAME: MNIST's files into a database."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from .flags import tool_option
from .mnist import digit_records, read_pair
from .new_databases import write_databases

log = logging.getLogger("caffe.tools")


@click.command("convert_mnist_data")
@click.argument("image_file", type=click.Path(path_type=Path))
@click.argument("label_file", type=click.Path(path_type=Path))
@click.argument("db_file", type=click.Path(path_type=Path))
@tool_option("backend", "lmdb", "The kind of database, lmdb or leveldb.")
@tool_option("force", False, "Replace a database that is there already.")
def command(image_file: Path, label_file: Path, db_file: Path, backend: str, force: bool) -> None:
    """Put the digits of IMAGE_FILE with the labels of LABEL_FILE into the new database DB_FILE.

    Both are files of MNIST or in its format (idx-ubyte), as they are or gzipped.
    """
    images, labels = read_pair(image_file, label_file)
    log.info("A total of %d items.", len(images))
    log.info("Rows: %d Cols: %d", *images.shape[1:])
    (count,) = write_databases({db_file: digit_records(images, labels)}, backend, force).values()
    log.info("Processed %d files.", count)
