"""LevelDB: a reader and a writer of our own, in plain Python and NumPy.

The only kept binding, plyvel, has no wheels for current Python, and opening a database with it
rewrites the database (docs/decisions/0010-leveldb.md). The reader changes nothing, takes no lock, and
reads what the original's tools wrote: logs, tables, snappy. The writer leaves everything in a log;
LevelDB itself turns that into tables when it opens the database.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from typing import BinaryIO

from ..errors import DataError, ForkError
from .base import DB, Cursor, Transaction
from .files import FileReader
from .leveldb_log import VALUE, LogValue, batch, damaged, fragments, read_batches
from .leveldb_table import read_table
from .leveldb_version import TableFile, Version, first_edit, read_version

# key, minus its sequence number, kind, value: in the order of merging, the newest of a key first.
Entry = tuple[bytes, int, int, bytes | LogValue]


class LevelDBReader(DB):
    """A LevelDB opened to read: a directory with CURRENT, a MANIFEST, logs and tables.

    Logs are indexed at opening (their values stay on disk), tables are opened when a cursor reaches
    them. It shows the state at opening; another process that opens the database to write may remove
    files of it, which then raises DataError.
    """

    backend = "LevelDB"

    def __init__(self, source: str):
        super().__init__(source, "read")
        self._about = f"LevelDB '{source}'"
        if not os.path.isfile(os.path.join(source, "CURRENT")):
            raise self.error(_why_no_leveldb(source))
        self._version: Version = read_version(source, self._about)
        self._logs: list[FileReader] = []
        self.last_sequence = self._version.last_sequence
        try:
            self._recent = self._read_logs()
            for file in self._version.tables.values():
                self._table_path(file)
        except DataError:
            self.close()
            raise

    @property
    def version(self) -> Version:
        return self._version

    def _read_logs(self) -> list[Entry]:
        newest: dict[bytes, Entry] = {}
        logs = (name[:-4] for name in os.listdir(self.source) if name.endswith(".log"))
        for number in sorted(int(name) for name in logs if name.isdigit()):
            if number < self._version.log and number != self._version.previous_log:
                continue  # its records stand in tables by now
            file = FileReader(os.path.join(self.source, f"{number:06d}.log"), self._about)
            self._logs.append(file)
            for key, sequence, kind, value in read_batches(file):
                known = newest.get(key)
                if known is None or -sequence <= known[1]:
                    newest[key] = (key, -sequence, kind, value)
                self.last_sequence = max(self.last_sequence, sequence)
        return [newest[key] for key in sorted(newest)]

    def _table_path(self, file: TableFile) -> str:
        for suffix in (".ldb", ".sst"):
            path = os.path.join(self.source, f"{file.number:06d}{suffix}")
            if os.path.exists(path):
                return path
        raise self.error(
            f"{file.number:06d}.ldb, which its MANIFEST names, is missing: another process changed the "
            "database, or the copy is incomplete"
        )

    @property
    def entries(self) -> None:
        return None

    def cursor(self) -> Cursor:
        return LevelDBCursor(self)

    def scan(self) -> Iterator[tuple[bytes, bytes | LogValue]]:
        """All live records in the order of their keys."""
        levels: dict[int, list[TableFile]] = {}
        for file in self._version.tables.values():
            levels.setdefault(file.level, []).append(file)
        streams: list[Iterator[Entry]] = [iter(self._recent)]
        # Tables of level 0 overlap; those of one higher level follow each other.
        streams += [self._read_tables([file]) for file in levels.pop(0, [])]
        streams += [self._read_tables(sorted(files, key=lambda f: f.smallest)) for files in levels.values()]
        last: bytes | None = None
        for key, _, kind, value in heapq.merge(*streams, key=lambda entry: entry[:2]):
            if key == last:
                continue  # an older value of the key
            if last is not None and key < last:
                raise self.error(f"its keys are out of order at {key!r}: it is damaged; create it again")
            last = key
            if kind == VALUE:
                yield key, value

    def _read_tables(self, files: list[TableFile]) -> Iterator[Entry]:
        for table in files:
            file = FileReader(self._table_path(table), self._about)
            try:
                if file.size != table.size:
                    raise damaged(file, f"{file.size} bytes instead of {table.size}")
                for key, sequence, kind, value in read_table(file):
                    yield key, -sequence, kind, value
            finally:
                file.close()

    def transaction(self) -> Transaction:
        raise self.error('it was opened to read; open it with mode "write" or "new"')

    def check(self) -> None:
        if not os.path.exists(os.path.join(self.source, "CURRENT")):
            raise self.error("it was deleted while it was being read")

    def close(self) -> None:
        for file in self._logs:
            file.close()


class LevelDBCursor(Cursor):
    """Reads on through a scan of the database."""

    def __init__(self, db: LevelDBReader):
        self._db = db
        self.seek_to_first()

    def seek_to_first(self) -> None:
        self._scan = self._db.scan()
        self._record = next(self._scan, None)

    def next(self) -> None:
        self._record = next(self._scan, None)

    def valid(self) -> bool:
        return self._record is not None

    def key(self) -> bytes:
        assert self._record is not None, "key() of a cursor that is not valid()"
        return self._record[0]

    def value(self) -> bytes:
        assert self._record is not None, "value() of a cursor that is not valid()"
        value = self._record[1]
        return value if isinstance(value, bytes) else value.read()


def _why_no_leveldb(source: str) -> str:
    if os.path.isfile(os.path.join(source, "data.mdb")):
        return "this is an LMDB; write backend: LMDB in its data_param (the default is LEVELDB)"
    if os.path.isdir(source):
        return "the directory holds no CURRENT, so it is no LevelDB"
    if os.path.exists(source):
        return "No such directory (it is a file); give the directory that holds CURRENT"
    where = "" if os.path.isabs(source) else f" (the path is relative to {os.getcwd()})"
    return f"No such file or directory{where}"


class LevelDBWriter(DB):
    """A LevelDB opened to write: its records go to the end of its log.

    mode "new": the directory must not exist; "write": it must be a LevelDB that no process has open.
    """

    backend = "LevelDB"

    def __init__(self, source: str, mode: str):
        super().__init__(source, mode)
        self._pid = os.getpid()
        number = 3
        self._sequence = 1
        if mode == "write":
            with LevelDBReader(source) as db:
                number = db.version.log or number
                self._sequence = db.last_sequence + 1
        else:
            try:
                os.mkdir(source)
            except OSError as error:
                why = f"mkdir failed: {error.strerror}; remove it or choose another name"
                raise self.error(why) from error
        self._lock = _lock(os.path.join(source, "LOCK"), self)
        self._log = open(os.path.join(source, f"{number:06d}.log"), "ab")
        if mode == "new":
            with open(os.path.join(source, "MANIFEST-000002"), "wb") as manifest:
                manifest.write(fragments(first_edit(number), 0))
            with open(os.path.join(source, "CURRENT"), "wb") as current:
                current.write(b"MANIFEST-000002\n")

    @property
    def entries(self) -> None:
        return None

    def cursor(self) -> Cursor:
        raise self.error('it was opened to write; open it with mode "read"')

    def transaction(self) -> Transaction:
        return LevelDBTransaction(self)

    def write(self, records: list[tuple[bytes, bytes]]) -> None:
        """Append all records as one batch, and wait until the disk has them."""
        self.check()
        try:
            self._log.write(fragments(batch(self._sequence, records), self._log.tell()))
            self._log.flush()
            os.fsync(self._log.fileno())
        except OSError as error:
            raise self.error(f"writing {len(records)} records failed: {error.strerror}") from error
        self._sequence += len(records)

    def check(self) -> None:
        if os.getpid() != self._pid:
            raise ForkError(f"LevelDB '{self.source}': it was opened before fork; open it in the child")

    def close(self) -> None:
        self._log.close()
        self._lock.close()


def _lock(path: str, db: DB) -> BinaryIO:
    """LevelDB's lock: one process at a time. A file system or platform without locks goes without."""
    file = open(path, "ab")
    try:
        import fcntl
    except ImportError:
        return file
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        file.close()
        raise db.error("another process has it open to write; close that one first") from error
    except OSError:
        return file
    return file


class LevelDBTransaction(Transaction):
    """Collects records; commit() appends them as one batch."""

    def __init__(self, db: LevelDBWriter):
        self._db = db
        self._records: list[tuple[bytes, bytes]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self._records.append((key, value))

    def commit(self) -> None:
        if self._records:
            self._db.write(self._records)
            self._records = []
