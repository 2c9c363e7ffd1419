"""Databases that appear whole or not at all, several together."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from caffe.db import DB, detect_backend, open_db
from caffe.errors import DataError
from caffe.proto.caffe_pb2 import Datum

from .signals import end_cleanly

# A commit is due after so many records, as in the original, or so many bytes.
_RECORDS, _BYTES = 1000, 1 << 26


class NewDatabase:
    """A database that is being written. target: where it will be. count: records put so far."""

    def __init__(self, target: Path, db: DB):
        self.target = target
        self.count = 0
        self._transaction = db.transaction()
        self._size = self._waiting = 0

    def put(self, key: str, value: bytes) -> None:
        """Add a record. Raises DataError when the disk refuses it."""
        self._transaction.put(key.encode("utf-8", "surrogateescape"), value)
        self.count += 1
        self._waiting += 1
        self._size += len(value)
        if self._waiting == _RECORDS or self._size >= _BYTES:
            self.commit()

    def commit(self) -> None:
        self._transaction.commit()
        self._size = self._waiting = 0


@contextlib.contextmanager
def new_databases(
    targets: Sequence[str | Path], backend: str, force: bool = False
) -> Iterator[list[NewDatabase]]:
    """Databases to be written, which appear at their targets at the end; after any error, none of them does,
    also after Ctrl-C or kill. Their folders are made if need be, and go again when nothing came of it.

    force: databases that are at the targets already are replaced at the end. Without it, and for anything
    else that is there, raises DataError; likewise for targets that are the same, an unknown backend, a
    database without any record, and when the disk refuses.
    """
    paths = [Path(target) for target in targets]
    _refuse_same(paths)
    refuse_existing(paths, force)
    with contextlib.ExitStack() as stack:
        stack.enter_context(end_cleanly())
        stack.enter_context(_named(paths))
        folders: dict[Path, Path] = {}
        for parent in dict.fromkeys(path.parent for path in paths):
            _make_folder(parent, stack)
            folders[parent] = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix=".new-", dir=parent))
            )
        made = [folders[path.parent] / f"{i}-{path.name}" for i, path in enumerate(paths)]
        with contextlib.ExitStack() as open_databases:
            writers = [
                NewDatabase(path, open_databases.enter_context(open_db(str(place), backend, "new")))
                for path, place in zip(paths, made, strict=True)
            ]
            yield writers
            for writer in writers:
                if not writer.count:
                    raise DataError(f"nothing was written, so {writer.target} was not made")
                writer.commit()
        for i, (path, place) in enumerate(zip(paths, made, strict=True)):
            if force and path.exists():
                path.rename(folders[path.parent] / f"old-{i}")  # goes with its folder
            place.rename(path)


def _make_folder(folder: Path, stack: contextlib.ExitStack) -> None:
    """Makes it with those above it; when the stack unwinds, what has stayed empty of these goes again."""
    for part in (*reversed(folder.parents), folder):
        if not part.exists():
            part.mkdir(exist_ok=True)
            stack.callback(_remove_if_empty, part)


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _refuse_same(paths: Sequence[Path]) -> None:
    seen: dict[str, Path] = {}
    for path in paths:
        other = seen.setdefault(os.path.abspath(path), path)
        if other is not path:
            raise DataError(f"each database needs a place of its own: {other} and {path} are the same")


@contextlib.contextmanager
def _named(paths: Sequence[Path]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        names = ", ".join(map(str, paths))
        raise DataError(f"cannot write {names}: {error.strerror or error}") from error


def refuse_existing(targets: Iterable[str | Path], force: bool = False) -> None:
    """Raises DataError for the first of targets that is there already, or, with force, is there and no
    database: nothing else is ever overwritten."""
    for target in map(Path, targets):
        if not target.exists() and not target.is_symlink():
            continue
        if not force:
            raise DataError(
                f"mkdir {target} failed: it exists already; remove it, choose another name, or replace it "
                "with --force"
            )
        if target.is_symlink() or detect_backend(str(target)) is None:
            raise DataError(f"{target} exists already and is no database; --force replaces databases alone")


def write_databases(
    records: Mapping[Path, Iterable[tuple[str, Datum]]], backend: str = "lmdb", force: bool = False
) -> dict[Path, int]:
    """new_databases of (key, Datum) pairs per path. Returns how many records each got."""
    with new_databases(list(records), backend, force) as databases:
        for database, pairs in zip(databases, records.values(), strict=True):
            for key, datum in pairs:
                database.put(key, datum.SerializeToString())
    return {database.target: database.count for database in databases}
