"""Databases that appear whole or not at all, several together."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from caffe.db import open_db
from caffe.errors import DataError
from caffe.proto.caffe_pb2 import Datum

_PER_COMMIT = 10_000


def refuse_existing(targets: Iterable[Path]) -> None:
    """Raises DataError for the first of targets that is there already: nothing is overwritten."""
    for target in targets:
        if target.exists():
            raise DataError(f"{target} exists already; remove it or choose another folder")


def write_databases(
    records: Mapping[Path, Iterable[tuple[str, Datum]]], backend: str = "lmdb"
) -> dict[Path, int]:
    """Write (key, Datum) pairs to a new database per path; all lie in one folder, which is made if need be.
    Returns how many records each got.

    On any error, none of them is there. Raises DataError for a path that exists, for a backend that is
    unknown, and when the disk refuses; what the records' iterators raise goes through.
    """
    refuse_existing(records)
    folder = next(iter(records)).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as scratch:
            made = {t: _write(Path(scratch) / t.name, pairs, backend) for t, pairs in records.items()}
            for target in records:
                (Path(scratch) / target.name).rename(target)
        return made
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {error.strerror or error}") from error


def _write(path: Path, pairs: Iterable[tuple[str, Datum]], backend: str) -> int:
    count = 0
    with open_db(str(path), backend, "new") as db:
        transaction = db.transaction()
        for count, (key, datum) in enumerate(pairs, 1):
            transaction.put(key.encode(), datum.SerializeToString())
            if count % _PER_COMMIT == 0:
                transaction.commit()
        transaction.commit()
    return count
