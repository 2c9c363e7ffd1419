"""Small data sets that ship with the package, as databases that a Data layer can name.

`source: "dataset://digits/train"` stands for an LMDB that is built in the user's cache when it is first
needed (docs/decisions/0011-embedded-datasets.md).
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .db import open_db
from .errors import DataError, closest
from .proto import caffe_pb2
from .resources import data_path

SCHEME = "dataset://"

# (key, Datum) of each record of one part, from the data set's file.
Records = Iterator[tuple[bytes, caffe_pb2.Datum]]


class Dataset(NamedTuple):
    """file: below models/. parts: their names. records(file, part): what each holds."""

    file: tuple[str, ...]
    parts: tuple[str, ...]
    records: Callable[[Path, str], Records]


def _digits(file: Path, part: str) -> Records:
    """The first 1,500 of the shuffled digits are for training, the other 297 for testing."""
    with np.load(file) as arrays:
        pixels, labels = arrays["pixels"], arrays["labels"]
    chosen = range(1500) if part == "train" else range(1500, len(labels))
    images = (pixels.astype(np.uint16) * 255 // 16).astype(np.uint8)
    for i in chosen:
        datum = caffe_pb2.Datum(channels=1, height=8, width=8, label=int(labels[i]), data=images[i].tobytes())
        yield b"%05d" % i, datum


_DATASETS = {"digits": Dataset(("digits", "digits.npz"), ("train", "test"), _digits)}


def resolve_source(source: str) -> str:
    """The path of the LMDB that dataset://NAME/PART stands for, built if it is not there yet; any other
    source as it is. Raises DataError for unknown names and when no place to build it can be written."""
    if not source.startswith(SCHEME):
        return source
    name, _, part = source.removeprefix(SCHEME).partition("/")
    known = [f"{SCHEME}{n}/{p}" for n, d in _DATASETS.items() for p in d.parts]
    dataset = _DATASETS.get(name)
    if dataset is None or part not in dataset.parts:
        raise DataError(f"unknown data set '{source}'; known: {', '.join(known)}{closest(source, known)}")
    file = data_path("models", *dataset.file)
    # Another release of the data set must not meet the database of this one.
    version = hashlib.sha256(file.read_bytes()).hexdigest()[:12]
    refusals = []
    for cache in cache_folders():
        target = cache / f"{name}-{version}" / f"{part}_lmdb"
        if target.is_dir():
            return str(target)
        try:
            _build(target, dataset.records(file, part))
            return str(target)
        except OSError as error:
            refusals.append(f"{cache}: {error.strerror}")
    raise DataError(
        f"cannot build the database of '{source}' ({'; '.join(refusals)}); set XDG_CACHE_HOME to a "
        "folder that can be written"
    )


def cache_folders() -> list[Path]:
    """Where databases may be built, best first: the user's cache, else the working directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return [Path(base) / "pycaffe" / "datasets", Path.cwd() / ".pycaffe" / "datasets"]


def _build(target: Path, records: Records) -> None:
    """Write the records to `target`, which appears whole or not at all; several processes may try."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        made = Path(scratch) / target.name
        with open_db(str(made), "lmdb", "new") as db:
            transaction = db.transaction()
            for key, datum in records:
                transaction.put(key, datum.SerializeToString())
            transaction.commit()
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():  # else another process was faster, and built the same
                raise
