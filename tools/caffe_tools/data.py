"""caffe data: databases of public data sets, downloaded or from local files."""

from __future__ import annotations

import hashlib
import logging
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from caffe.datasets import cache_folders
from caffe.download import download
from caffe.errors import DataError
from caffe.proto.caffe_pb2 import Datum

from . import cifar
from .download_bar import download_bar
from .mnist import digit_records, read_pair, siamese_records
from .new_databases import refuse_existing, write_databases
from .public_data import SETS

log = logging.getLogger("caffe.tools")

_PAIRS_SEED = 1701  # the same pairs whenever they are made

# From images and labels to the records of a database.
Records = Callable[[np.ndarray, np.ndarray], Iterator[tuple[str, Datum]]]


class Order(NamedTuple):
    """What was typed: where the databases shall be, the folder of local files, and how to make them."""

    folder: Path
    source: Path | None
    backend: str
    force: bool

    def targets(self, name: str) -> tuple[Path, Path]:
        """The paths of the training and the test database. Raises DataError when they may not be made."""
        train, test = (self.folder / f"{name}_{part}_{self.backend}" for part in ("train", "test"))
        refuse_existing((train, test), self.force)
        return train, test

    def write(self, records: dict[Path, Iterator[tuple[str, Datum]]]) -> None:
        for target, count in write_databases(records, self.backend, self.force).items():
            log.info("Wrote %d records to %s", count, target)


@click.group("data")
def command() -> None:
    """Make databases of public data sets, for Data layers."""


def _command(name: str, help: str) -> Callable[[Callable[[Order], None]], None]:
    """Decorator: a command of the group, with the arguments that make an Order."""
    source = click.Path(exists=True, file_okay=False, path_type=Path)
    params: list[click.Parameter] = [
        click.Argument(["folder"], type=click.Path(file_okay=False, path_type=Path)),
        click.Option(
            ["--from", "source"],
            type=source,
            help="A folder with the files; without it, they are downloaded.",
        ),
        click.Option(
            ["--backend"],
            type=click.Choice(["lmdb", "leveldb"]),
            default="lmdb",
            show_default=True,
            help="The kind of database.",
        ),
        click.Option(["--force"], is_flag=True, help="Replace databases that are there already."),
    ]

    def decorate(function: Callable[[Order], None]) -> None:
        def callback(**values: Any) -> None:
            function(Order(**values))

        command.add_command(
            click.Command(name, params=params, callback=callback, help=function.__doc__, short_help=help)
        )

    return decorate


@_command("mnist", "handwritten digits, 28 x 28")
def mnist(order: Order) -> None:
    """Handwritten digits of 28 x 28 pixels: FOLDER/mnist_train_lmdb with 60,000, FOLDER/mnist_test_lmdb
    with 10,000.

    Files for --from, as they are or gzipped: train-images-idx3-ubyte, train-labels-idx1-ubyte,
    t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte. Other data sets in this format will do, too.
    """
    _make(order, "mnist", "mnist", digit_records)


@_command("mnist-siamese", "pairs of handwritten digits")
def mnist_siamese(order: Order) -> None:
    """Pairs of MNIST's digits for siamese nets: FOLDER/mnist_siamese_train_lmdb with 60,000,
    FOLDER/mnist_siamese_test_lmdb with 10,000.

    Each record has two channels of 28 x 28, one per digit, and the label 1 where the digits are of one
    class, else 0. The pairs are drawn at random, but the same every time. --from as for mnist.
    """

    def pairs(images: np.ndarray, labels: np.ndarray) -> Iterator[tuple[str, Datum]]:
        return siamese_records(images, labels, np.random.default_rng([_PAIRS_SEED, len(labels)]))

    _make(order, "mnist", "mnist_siamese", pairs)


@_command("fashion-mnist", "pictures of clothes, 28 x 28")
def fashion_mnist(order: Order) -> None:
    """Grey pictures of 10 kinds of clothes, 28 x 28 pixels: FOLDER/fashion_mnist_train_lmdb with 60,000,
    FOLDER/fashion_mnist_test_lmdb with 10,000.

    The files have the names and the format of MNIST's. --from as for mnist; Debian's package
    dataset-fashion-mnist puts them into /usr/share/datasets/fashion-mnist.
    """
    _make(order, "fashion-mnist", "fashion_mnist", digit_records)


@_command("cifar10", "small colour photographs of 10 classes")
def cifar10(order: Order) -> None:
    """Small colour photographs of 10 classes, 3 x 32 x 32: FOLDER/cifar10_train_lmdb with 50,000,
    FOLDER/cifar10_test_lmdb with 10,000. The channels are red, green, blue.

    Files for --from: cifar-10-binary.tar.gz, or what is in it: data_batch_1.bin to data_batch_5.bin and
    test_batch.bin.
    """
    train, test = order.targets("cifar10")
    if order.source is None:
        place = _downloaded("cifar10") / cifar.ARCHIVE
    elif (found := cifar.find(order.source)) is not None:
        place = found
    else:
        raise DataError(f"neither {cifar.ARCHIVE} nor {cifar.TRAIN_FILES[0]} is in {order.source}")
    order.write(
        {
            train: cifar.records(cifar.read_files(place, cifar.TRAIN_FILES)),
            test: cifar.records(cifar.read_files(place, cifar.TEST_FILES)),
        }
    )


def _make(order: Order, name: str, prefix: str, records: Records) -> None:
    """Databases prefix_train_…, prefix_test_… of a public set in MNIST's format."""
    targets = order.targets(prefix)
    stems = [(f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte") for part in ("train", "t10k")]
    if order.source is None:
        downloads = _downloaded(name)
        parts = [read_pair(*(downloads / f"{stem}.gz" for stem in pair)) for pair in stems]
    else:
        paths = _find_idx_files(order.source, [stem for pair in stems for stem in pair])
        parts = [read_pair(*(paths[stem] for stem in pair)) for pair in stems]
        for pair, arrays in zip(stems, parts, strict=True):
            for stem, array in zip(pair, arrays, strict=True):
                _warn_of_others(paths[stem], array, name, SETS[name].unpacked[stem])
    order.write({target: records(*part) for target, part in zip(targets, parts, strict=True)})


def _find_idx_files(source: Path, stems: list[str]) -> dict[str, Path]:
    """Where each file is; unpackers write the names with a dot, as they stand in the archives' headers."""
    found, missing = {}, []
    for stem in stems:
        names = [f"{spelled}{end}" for spelled in (stem, stem.replace("-idx", ".idx")) for end in ("", ".gz")]
        path = next((source / name for name in names if (source / name).is_file()), None)
        if path is None:
            missing.append(stem)
        else:
            found[stem] = path
    if missing:
        raise DataError(f"{source} lacks {', '.join(missing)} (as it is, or with .gz)")
    return found


def _warn_of_others(path: Path, array: np.ndarray, name: str, md5: str) -> None:
    """Tell when a local file is not that of the public set."""
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    if hashlib.md5(header + array.tobytes(), usedforsecurity=False).hexdigest() != md5:
        log.warning("%s is not that of %s (its MD5 differs): another data set, or altered", path, name)


def _downloaded(name: str) -> Path:
    """The folder that has the files of a public set, after downloading those that are missing."""
    files, mirrors, _ = SETS[name]
    folder = cache_folders()[0].parent / "downloads" / name
    try:
        for file in files:
            with download_bar(file.name, file.size) as progress:
                download(file, mirrors, folder, progress)
    except DataError as error:
        names = ", ".join(file.name for file in files)
        raise DataError(
            f"{error}\nWithout a network: put {names} into a folder, and add: --from THAT_FOLDER"
        ) from error
    return folder
