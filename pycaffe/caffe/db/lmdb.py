"""LMDB: read by a small reader of our own, written through the lmdb package.

Why the reader does not use the package: liblmdb maps the file, so that a truncated or damaged file
kills the process instead of raising; one process may not open a file twice; it wants a writable lock
file; and its map must not be used after fork. Reading pages has none of these limits
(docs/decisions/0009-lmdb-reader.md).
"""

from __future__ import annotations

import os
from typing import Any

from ..errors import DataError, ForkError
from .base import DB, Cursor, Transaction
from .lmdb_cursor import LMDBCursor
from .lmdb_pages import LMDBFile, Snapshot

_FIRST_MAP_SIZE = 1 << 26  # 64 MiB; it doubles whenever it is full
_LARGEST_MAP_SIZE = 1 << 46
_LONGEST_KEY = 511


class LMDBReader(DB):
    """An LMDB environment opened to read: a directory with data.mdb.

    It shows the state of the last commit before it was opened. No lock is taken: any number of
    processes may read, on read-only media too. A process that commits twice meanwhile may reuse pages
    of that state; check() finds this out.
    """

    backend = "LMDB"

    def __init__(self, source: str):
        super().__init__(source, "read")
        path = os.path.join(source, "data.mdb")
        if not os.path.exists(path):
            raise self.error(_why_no_lmdb(source))
        self._file = LMDBFile(path, f"LMDB '{source}'")
        try:
            self._snapshot: Snapshot = self._file.newest()
            self._check_complete()
        except DataError:
            self._file.close()
            raise

    def _check_complete(self) -> None:
        # The last pages may rightly be missing (freed within a transaction), so that a short file alone
        # proves nothing; but the last record must be there.
        if self._file.size < self._snapshot.pages * self._file.page_size:
            cursor = LMDBCursor(self._file, self._snapshot)
            cursor.seek_to_last()
            if cursor.valid():
                cursor.value()

    @property
    def entries(self) -> int:
        return self._snapshot.entries

    def cursor(self) -> Cursor:
        cursor = LMDBCursor(self._file, self._snapshot)
        cursor.seek_to_first()
        return cursor

    def transaction(self) -> Transaction:
        raise self.error('it was opened to read; open it with mode "write" or "new"')

    def check(self) -> None:
        if self._file.deleted:
            raise self.error("it was deleted while it was being read")
        newest = self._file.newest()
        if not 0 <= newest.transaction - self._snapshot.transaction <= 1:
            raise self.error(
                f"another process wrote to it while it was being read (transaction {newest.transaction} "
                f"after {self._snapshot.transaction}); let the writer finish, then start again"
            )

    def close(self) -> None:
        self._file.close()


def _why_no_lmdb(source: str) -> str:
    if os.path.isfile(os.path.join(source, "CURRENT")):
        return "this is a LevelDB; write backend: LEVELDB (the default) in its data_param"
    if os.path.isdir(source):
        return "the directory holds no data.mdb, so it is no LMDB"
    if os.path.exists(source):
        return "No such directory (it is a file); give the directory that holds data.mdb"
    where = "" if os.path.isabs(source) else f" (the path is relative to {os.getcwd()})"
    return f"No such file or directory{where}"


class LMDBWriter(DB):
    """An LMDB environment opened to write.

    mode "new": the directory must not exist; "write": it must be an LMDB.
    """

    backend = "LMDB"

    def __init__(self, source: str, mode: str):
        import lmdb

        super().__init__(source, mode)
        if mode == "write":
            with LMDBReader(source):  # a clear refusal of what is missing or damaged
                pass
        try:
            if mode == "new":
                os.mkdir(source)
            # A directory that was made just now has no other user, and its file system may have no locks.
            self._env = lmdb.open(source, map_size=_FIRST_MAP_SIZE, lock=mode != "new", readahead=False)
        except FileExistsError as error:
            raise self.error("mkdir failed: it exists already; remove it or choose another name") from error
        except (OSError, lmdb.Error) as error:
            raise self.error(f"cannot be opened to write: {error}") from error
        self._pid = os.getpid()
        # An environment that holds more than this keeps its own, larger size.
        self._map_size = max(_FIRST_MAP_SIZE, self._env.info()["map_size"])

    @property
    def entries(self) -> int:
        return self.environment.stat()["entries"]

    @property
    def environment(self) -> Any:
        """The lmdb package's Environment. Raises ForkError in a forked child."""
        if os.getpid() != self._pid:
            raise ForkError(
                f"LMDB '{self.source}': it was opened before fork; open it in the child (its map and locks "
                "belong to the parent)"
            )
        return self._env

    def cursor(self) -> Cursor:
        raise self.error('it was opened to write; open it with mode "read"')

    def transaction(self) -> Transaction:
        return LMDBTransaction(self)

    def write(self, records: list[tuple[bytes, bytes]]) -> None:
        """Put all records in one transaction, with as large a map as that needs."""
        import lmdb

        while True:
            try:
                with self.environment.begin(write=True) as txn:
                    for key, value in records:
                        txn.put(key, value)
                return
            except lmdb.MapFullError as error:
                if self._map_size >= _LARGEST_MAP_SIZE:
                    raise self.error(f"cannot grow beyond {self._map_size} bytes") from error
                self._map_size *= 2
                self._env.set_mapsize(self._map_size)
            except lmdb.Error as error:
                raise self.error(f"writing {len(records)} records failed: {error}") from error

    def check(self) -> None:
        self.environment  # noqa: B018 - raises after fork

    def close(self) -> None:
        if os.getpid() == self._pid:
            self._env.close()


class LMDBTransaction(Transaction):
    """Collects records; commit() writes them in one LMDB transaction."""

    def __init__(self, db: LMDBWriter):
        self._db = db
        self._records: list[tuple[bytes, bytes]] = []

    def put(self, key: bytes, value: bytes) -> None:
        if not 0 < len(key) <= _LONGEST_KEY:
            raise self._db.error(f"a key must have 1 to {_LONGEST_KEY} bytes, not {len(key)}: {key[:60]!r}")
        self._records.append((key, value))

    def commit(self) -> None:
        if self._records:
            self._db.write(self._records)
            self._records = []
