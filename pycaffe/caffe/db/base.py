"""What a database of records is, whatever its backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np

from ..errors import DataError

MODES = ("read", "new", "write")

# Some rows of an array (values, size) of uint8, which holds more values than were asked for: what is found
# out about it once is right for all calls that give pieces of it.
Piece = tuple[np.ndarray, slice]
Accept = Callable[[list[Piece]], bool]


class DB(ABC):
    """An ordered map from bytes keys to bytes values, on disk.

    source: its path as the user wrote it. Databases opened to read may be read by several cursors,
    threads and processes at once; each cursor belongs to one thread at a time. Writing needs
    exclusive use. Source: Caffe's db::DB, Cursor and Transaction.
    """

    backend: str = ""

    def __init__(self, source: str, mode: str):
        self.source, self.mode = source, mode

    @property
    @abstractmethod
    def entries(self) -> int | None:
        """Number of records, or None where it is not known without reading all of them."""

    @abstractmethod
    def cursor(self) -> Cursor:
        """A cursor on the first record. Raises DataError unless opened to read."""

    @abstractmethod
    def transaction(self) -> Transaction:
        """A new batch of writes. Raises DataError when opened to read."""

    @abstractmethod
    def check(self) -> None:
        """Raises DataError when the files were deleted, truncated or rewritten since opening, so that
        what was read up to now cannot be trusted. Cheap enough to be called for every batch."""

    @abstractmethod
    def close(self) -> None:
        """Release files and locks; harmless when repeated."""

    def error(self, reason: str) -> DataError:
        """A DataError that names this database."""
        return DataError(f"{self.backend} '{self.source}': {reason}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Cursor(ABC):
    """A place in a database, moving in the order of the keys (as bytes).

    key() and value() may be called while valid(). A damaged database raises DataError that names it.
    """

    @abstractmethod
    def seek_to_first(self) -> None: ...

    @abstractmethod
    def next(self) -> None: ...

    @abstractmethod
    def valid(self) -> bool:
        """False after the last record, and in an empty database."""

    @abstractmethod
    def key(self) -> bytes: ...

    @abstractmethod
    def value(self) -> bytes: ...

    def skip(self, count: int) -> int:
        """Move on by count records, without reading their values; stops after the last one.
        Returns how many records it passed."""
        for passed in range(count):
            if not self.valid():
                return passed
            self.next()
        return count

    def rows(self, count: int, step: int, most: int, accept: Accept) -> bool:
        """Give accept() the values of this record and of every step-th after it, `count` in all, where they
        can be had many at once: when they are of one size, up to `most` bytes, and lie in order.

        When it returns True, the cursor has moved to the last one of them, and so does this. Else it returns
        False, and the cursor, which must be valid, has not moved; also where there are too few, or one is
        damaged."""
        return False


class Transaction(ABC):
    """Writes that become durable together."""

    @abstractmethod
    def put(self, key: bytes, value: bytes) -> None:
        """Add or replace one record; nothing is visible before commit()."""

    @abstractmethod
    def commit(self) -> None:
        """Write all that was put, and start afresh. Raises DataError when the disk refuses it."""
