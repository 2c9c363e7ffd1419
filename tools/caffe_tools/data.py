"""caffe data: databases of public data sets, downloaded or from local files."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np

from caffe.datasets import cache_folders
from caffe.download import Progress, RemoteFile, download
from caffe.errors import DataError
from caffe.proto.caffe_pb2 import Datum

from . import cifar
from .mnist import digit_records, read_pair, siamese_records
from .new_databases import refuse_existing, write_databases
from .public_data import MNIST_UNPACKED, SETS

log = logging.getLogger("caffe.tools")

# Which files are for what, and where a database's name says so.
_MNIST_PARTS = {"train": "train", "test": "t10k"}
_PAIRS_SEED = 1701  # the same pairs whenever they are made


@click.group("data")
def command() -> None:
    """Make LMDBs of public data sets, for Data layers."""


def _arguments(function: Callable[..., None]) -> Callable[..., None]:
    """FOLDER, --from, --backend and --force."""
    source = click.Path(exists=True, file_okay=False, path_type=Path)
    for decorate in (
        click.option(
            "--backend",
            type=click.Choice(["lmdb", "leveldb"]),
            default="lmdb",
            show_default=True,
            help="The kind of database.",
        ),
        click.option("--force", is_flag=True, help="Replace databases that are there already."),
        click.option(
            "--from", "source", type=source, help="A folder with the files; without it, they are downloaded."
        ),
        click.argument("folder", type=click.Path(file_okay=False, path_type=Path)),
    ):
        function = decorate(function)
    return function


@command.command("mnist", short_help="handwritten digits, 28 x 28")
@_arguments
def mnist(folder: Path, source: Path | None, backend: str, force: bool) -> None:
    """Handwritten digits of 28 x 28 pixels: FOLDER/mnist_train_lmdb with 60,000, FOLDER/mnist_test_lmdb
    with 10,000.

    Files for --from, as they are or gzipped: train-images-idx3-ubyte, train-labels-idx1-ubyte,
    t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte. Other data sets in this format will do, too.
    """
    _make_mnist(
        folder, source, backend, force, "mnist", lambda images, labels, _: digit_records(images, labels)
    )


@command.command("mnist-siamese", short_help="pairs of handwritten digits")
@_arguments
def mnist_siamese(folder: Path, source: Path | None, backend: str, force: bool) -> None:
    """Pairs of MNIST's digits for siamese nets: FOLDER/mnist_siamese_train_lmdb with 60,000,
    FOLDER/mnist_siamese_test_lmdb with 10,000.

    Each record has two channels of 28 x 28, one per digit, and the label 1 where the digits are of one
    class, else 0. The pairs are drawn at random, but the same every time. --from as for mnist.
    """
    _make_mnist(folder, source, backend, force, "mnist_siamese", siamese_records)


@command.command("cifar10", short_help="small colour photographs of 10 classes")
@_arguments
def cifar10(folder: Path, source: Path | None, backend: str, force: bool) -> None:
    """Small colour photographs of 10 classes, 3 x 32 x 32: FOLDER/cifar10_train_lmdb with 50,000,
    FOLDER/cifar10_test_lmdb with 10,000. The channels are red, green, blue.

    Files for --from: cifar-10-binary.tar.gz, or what is in it: data_batch_1.bin to data_batch_5.bin and
    test_batch.bin.
    """
    targets = {part: folder / f"cifar10_{part}_{backend}" for part in ("train", "test")}
    refuse_existing(targets.values(), force)
    if source is None:
        place = _downloaded("cifar10") / cifar.ARCHIVE
    elif (found := cifar.find(source)) is not None:
        place = found
    else:
        raise DataError(f"neither {cifar.ARCHIVE} nor {cifar.TRAIN_FILES[0]} is in {source}")
    files = {"train": cifar.TRAIN_FILES, "test": cifar.TEST_FILES}
    _write(
        {targets[part]: cifar.records(cifar.read_files(place, files[part])) for part in targets},
        backend,
        force,
    )


def _make_mnist(
    folder: Path,
    source: Path | None,
    backend: str,
    force: bool,
    name: str,
    records: Callable[[np.ndarray, np.ndarray, np.random.Generator], Iterator[tuple[str, Datum]]],
) -> None:
    targets = {part: folder / f"{name}_{part}_{backend}" for part in _MNIST_PARTS}
    refuse_existing(targets.values(), force)
    stems = {part: (f"{p}-images-idx3-ubyte", f"{p}-labels-idx1-ubyte") for part, p in _MNIST_PARTS.items()}
    if source is None:
        downloads = _downloaded("mnist")
        paths = {stem: downloads / f"{stem}.gz" for pair in stems.values() for stem in pair}
    else:
        paths = _find_mnist(source, [stem for pair in stems.values() for stem in pair])
    parts = {part: read_pair(*(paths[stem] for stem in stems[part])) for part in targets}
    if source is not None:
        for part, arrays in parts.items():
            for stem, array in zip(stems[part], arrays, strict=True):
                _warn_of_others(paths[stem], stem, array)
    _write(
        {
            targets[part]: records(images, labels, np.random.default_rng([_PAIRS_SEED, len(labels)]))
            for part, (images, labels) in parts.items()
        },
        backend,
        force,
    )


def _find_mnist(source: Path, stems: list[str]) -> dict[str, Path]:
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


def _warn_of_others(path: Path, stem: str, array: np.ndarray) -> None:
    """Tell when a local file is not MNIST's own."""
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    digest = hashlib.md5(header + array.tobytes(), usedforsecurity=False)
    if digest.hexdigest() != MNIST_UNPACKED[stem]:
        log.warning("%s is not MNIST's own file (its MD5 differs): another data set, or altered", path)


def _write(records: dict[Path, Iterator[tuple[str, Datum]]], backend: str, force: bool) -> None:
    for target, count in write_databases(records, backend, force).items():
        log.info("Wrote %d records to %s", count, target)


def _downloaded(name: str) -> Path:
    """The folder that has the files of a public set, after downloading those that are missing."""
    files, mirrors = SETS[name]
    folder = cache_folders()[0].parent / "downloads" / name
    try:
        for file in files:
            with _progress_bar(file) as progress:
                download(file, mirrors, folder, progress)
    except DataError as error:
        names = ", ".join(file.name for file in files)
        raise DataError(
            f"{error}\nWithout a network: put {names} into a folder, and add: --from THAT_FOLDER"
        ) from error
    return folder


@contextlib.contextmanager
def _progress_bar(file: RemoteFile) -> Iterator[Progress | None]:
    """On a terminal, what draws a bar; else None."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = TextColumn(file.name), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=file.size)
        yield lambda done, _: bar.update(task, completed=done)
