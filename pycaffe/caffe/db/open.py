"""open_db: a database by path, backend and mode."""

from __future__ import annotations

import os

from ..errors import DataError, closest
from ..proto import caffe_pb2
from .base import DB, MODES
from .leveldb import LevelDBReader, LevelDBWriter
from .lmdb import LMDBReader, LMDBWriter

_BACKENDS = {"lmdb": (LMDBReader, LMDBWriter), "leveldb": (LevelDBReader, LevelDBWriter)}


def detect_backend(source: str) -> str | None:
    """ "lmdb" or "leveldb", by the files in the directory; None where it is neither."""
    if os.path.isfile(os.path.join(source, "data.mdb")):
        return "lmdb"
    return "leveldb" if os.path.isfile(os.path.join(source, "CURRENT")) else None


def open_db(source: str, backend: str | int, mode: str = "read") -> DB:
    """The database at `source`.

    backend: "lmdb" or "leveldb" in any case, or a value of DataParameter.DB.
    mode: "read"; "new" (create it, it must not exist); "write" (add to an existing one).
    Raises DataError when it is missing, damaged, of another kind, or exists already.
    """
    name = caffe_pb2.DataParameter.DB.Name(backend) if isinstance(backend, int) else backend
    classes = _BACKENDS.get(name.lower())
    if classes is None:
        known = ", ".join(_BACKENDS) + closest(name, _BACKENDS)
        raise DataError(f"Unknown database backend {name!r}; known: {known}")
    if mode not in MODES:
        raise DataError(f"open_db: unknown mode {mode!r}; known: {', '.join(MODES)}")
    if not source:
        raise DataError("a database needs a path: data_param has no source")
    reader, writer = classes
    return reader(source) if mode == "read" else writer(source, mode)
