"""DataReader: the records of a database, repeated for ever, in batches that are made ahead."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .db import DB, Cursor, open_db
from .db.base import Accept, Piece
from .errors import DataError
from .prefetch import Batch as Batch
from .prefetch import Fill, Prefetcher, Source

Record = tuple[bytes, bytes]


class Records:
    """The records of one batch, to be read once: all at once as rows, or else one by one."""

    def __init__(self, source: _Records, batch: Batch):
        self._source, self._batch = source, batch

    def __iter__(self) -> Iterator[Record]:
        return self._source.one_by_one(self._batch)

    def rows(self, most: int, accept: Accept) -> bool:
        """Give accept() all values, where they are of one size, up to `most` bytes, and lie in order in the
        database (Cursor.rows). Has it taken them (returned True)? If not, nothing has been read."""
        return self._source.rows(self._batch, most, accept)


class DataReader(Prefetcher):
    """A Prefetcher of a database's records: place p of the stream is record p mod entries.

    With several ranks, rank r of num_ranks reads places r, r + num_ranks, r + 2 num_ranks ...
    fill, prefetch, threads: see Prefetcher. skip: records to leave out at the very start.

    Raises DataError for a database that cannot be opened or is empty.
    """

    def __init__(
        self,
        source: str,
        backend: str | int,
        batch_size: int,
        fill: Fill,
        *,
        prefetch: int = 4,
        threads: int = 1,
        rank: int = 0,
        num_ranks: int = 1,
        skip: int = 0,
    ):
        if not 0 <= rank < num_ranks:
            raise DataError(f"rank (={rank}) must lie in [0, {num_ranks})")
        self._records = _Records(open_db(source, backend), batch_size, rank, num_ranks)
        super().__init__(self._records, fill, batch_size, prefetch=prefetch, threads=threads, position=skip)

    def first_record(self) -> Record:
        """The database's first record, for shapes."""
        self.check()
        return self._records.first_record

    def regular(self, most: int) -> bool:
        """Do the first records come many at once (Cursor.rows)? To be asked before the first batch."""
        self.check()
        return self._records.regular(most)


class _Records(Source):
    """A database as a stream."""

    def __init__(self, db: DB, batch_size: int, rank: int, num_ranks: int):
        self.about = f"{db.backend} '{db.source}'"
        self._db, self._batch_size, self._rank, self._num_ranks = db, batch_size, rank, num_ranks
        try:
            self._cursor: Cursor = db.cursor()
            if not self._cursor.valid():
                raise DataError(f"{self.about}: it has no records; was it converted from an empty list?")
            self.first_record: Record = (self._cursor.key(), self._cursor.value())
        except DataError:
            db.close()
            raise
        self.entries = db.entries
        self._place = self._epoch = 0  # of the cursor
        self._epoch_start = 0  # place of the first record of this epoch
        self._checked: np.ndarray | None = None  # the last block of values after which nothing was wrong

    def seek(self, position: int) -> None:
        start = position + self._rank
        if start < self._place or self.entries:
            self._cursor.seek_to_first()
            self._place = self._epoch = self._epoch_start = 0
        if self.entries:
            self._epoch, ahead = divmod(start, self.entries)
            self._place = self._epoch_start = start - ahead
        self._advance(start - self._place)

    def read(self, batch: Batch) -> Records:
        batch.first, batch.epoch = self._place, self._epoch
        return Records(self, batch)

    def one_by_one(self, batch: Batch) -> Iterator[Record]:
        """The records of a batch, each read when its turn comes."""
        cursor = self._cursor
        for _ in range(self._batch_size):
            yield cursor.key(), cursor.value()
            batch.last = self._place
            self._advance(self._num_ranks)
        self._db.check()
        batch.position = self._place - self._rank

    def rows(self, batch: Batch, most: int, accept: Accept) -> bool:
        """See Records."""
        blocks: list[np.ndarray] = []

        def note(pieces: list[Piece]) -> bool:
            blocks.extend(block for block, _ in pieces)
            return accept(pieces)

        if not self._cursor.rows(self._batch_size, self._num_ranks, most, note):
            return False
        self._place += (self._batch_size - 1) * self._num_ranks
        batch.last = self._place
        self._advance(self._num_ranks)
        if blocks[-1] is not self._checked:  # else all was in memory when the database was as it should be
            self._db.check()
            self._checked = blocks[-1]
        batch.position = self._place - self._rank
        return True

    def regular(self, most: int) -> bool:
        """See DataReader."""
        found: list[Piece] = []

        def look(pieces: list[Piece]) -> bool:
            found.extend(pieces)
            return False

        self._cursor.rows(1, 1, most, look)
        return bool(found)

    def _advance(self, count: int) -> None:
        """Move the cursor on in the endless stream."""
        cursor = self._cursor
        wanted = self._place + count
        while self._place < wanted or not cursor.valid():
            if not cursor.valid():
                cursor.seek_to_first()
                self.entries = self._place - self._epoch_start
                self._epoch += 1
                self._epoch_start = self._place
                if not cursor.valid():
                    raise DataError(f"{self.about}: its records are gone")
            if wanted - self._place == 1:
                cursor.next()
                self._place += 1
            else:
                self._place += cursor.skip(wanted - self._place)

    def close(self) -> None:
        self._db.close()
