"""convert_cifar_data INPUT_FOLDER OUTPUT_FOLDER DB_TYPE: CIFAR-10's binary files into databases."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from . import cifar
from .flags import tool_option
from .new_databases import write_databases

log = logging.getLogger("caffe.tools")


@click.command("convert_cifar_data")
@click.argument("input_folder", type=click.Path(file_okay=False, path_type=Path))
@click.argument("output_folder", type=click.Path(file_okay=False, path_type=Path))
@click.argument("db_type")
@tool_option("force", False, "Replace databases that are there already.")
def command(input_folder: Path, output_folder: Path, db_type: str, force: bool) -> None:
    """Put CIFAR-10 into the new databases OUTPUT_FOLDER/cifar10_train_DB_TYPE and cifar10_test_DB_TYPE.

    INPUT_FOLDER holds data_batch_1.bin to data_batch_5.bin and test_batch.bin, or the archive of them.
    Channels are red, green, blue, as in the files. DB_TYPE is lmdb or leveldb.
    """
    place = cifar.find(input_folder) or input_folder
    files = {"train": cifar.TRAIN_FILES, "test": cifar.TEST_FILES}
    records = {
        output_folder / f"cifar10_{part}_{db_type}": cifar.records(cifar.read_files(place, names))
        for part, names in files.items()
    }
    for target, count in write_databases(records, db_type, force).items():
        log.info("Wrote %d images to %s", count, target)
