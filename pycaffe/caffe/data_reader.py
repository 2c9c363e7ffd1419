"""DataReader: threads that read records ahead of the net and make whole batches of them.

The records of a database, repeated for ever, are a stream; place p of it is record p mod entries. With
several ranks, rank r reads places r, r + num_ranks, r + 2 num_ranks ... Batches depend on the place
alone, so that prefetch depth and number of threads do not change them, and a run that seeks to the
place where another one stopped goes on exactly as that one would have.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from .db import DB, Cursor, open_db
from .errors import CaffeError, DataError, ForkError

Record = tuple[bytes, bytes]


class Batch:
    """A prefetched batch: memory that is used again after release().

    data: (N, C, h, w) float32. labels: (N,) float32.
    first, last: places of its first and last record in the stream. position: the place from which the
    next batch is read. epoch: how many times the database had been read through before the first record.
    """

    def __init__(self, batch_size: int):
        self.labels = np.zeros(batch_size, np.float32)
        self.data = np.zeros((batch_size, 0), np.float32)
        self._memory = np.zeros(0, np.float32)
        self.first = self.last = self.position = self.epoch = 0

    def reshape(self, shape: Sequence[int]) -> None:
        """Give data the shape (N, *shape), in the same memory if it is large enough."""
        wanted = (len(self.labels), *shape)
        if self.data.shape != wanted:
            count = math.prod(wanted)
            if self._memory.size < count:
                self._memory = np.empty(count, np.float32)
            self.data = self._memory[:count].reshape(wanted)


# fill(records, batch): parse and transform the records into batch.data and batch.labels.
Fill = Callable[[list[Record], Batch], None]


class DataReader:
    """Endless batches of a database, read ahead by daemon threads.

    fill: what makes a batch of records; called in the threads, must not refer to the reader's owner.
    prefetch: number of batches kept ready, which bounds the memory. threads: how many work at once, each on
    a batch of its own (for images that take long to decode); an attribute that may be set before the
    first batch. rank, num_ranks: which share to read. skip: records to leave out at the very start.

    Threads start with the first next_batch(), and end with close() or when the reader is forgotten. What
    goes wrong in one is raised by next_batch(), after the batches before it. A forked child gets
    ForkError. One thread at a time may use a reader. Raises DataError for a database that cannot be
    opened or is empty.
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
        if batch_size < 1 or prefetch < 1 or threads < 1:
            numbers = f"batch_size (={batch_size}), prefetch (={prefetch}) and threads (={threads})"
            raise DataError(f"{numbers} must be 1 or more")
        if not 0 <= rank < num_ranks:
            raise DataError(f"rank (={rank}) must lie in [0, {num_ranks})")
        self._shared = _Shared(open_db(source, backend), batch_size, fill, rank, num_ranks)
        self._prefetch, self.threads = prefetch, threads
        self._workers: list[threading.Thread] = []
        self._position = skip
        self._close = weakref.finalize(self, _Shared.close, self._shared, self._workers)

    @property
    def entries(self) -> int | None:
        """Number of records in the database, where it is known."""
        return self._shared.db.entries

    def first_record(self) -> Record:
        """The database's first record, for shapes."""
        self._check()
        return self._shared.first_record

    @property
    def position(self) -> int:
        """The place in the stream after all records that next_batch() has given out, however many
        more have been read ahead."""
        return self._position

    def seek(self, position: int) -> None:
        """Let the next batch begin at this place of the stream (what `position` said then)."""
        if position < 0:
            raise DataError(f"a position must be 0 or more, not {position}")
        self._check()
        self._shared.stop(self._workers)
        self._workers.clear()
        self._position = position

    def next_batch(self) -> Batch:
        """The next batch; it stays as it is until it is handed to release()."""
        self._check()
        if not self._workers:
            self._start()
        batch = self._shared.take()
        self._position = batch.position
        return batch

    def release(self, batch: Batch) -> None:
        """Let the memory of a batch be used for another one. (After a seek, it is merely dropped.)"""
        self._shared.check_process()
        self._shared.release(batch)

    def close(self) -> None:
        """End the threads and close the database; harmless when repeated."""
        self._close()

    def _start(self) -> None:
        self._shared.restart(self._position, self._prefetch)
        for i in range(min(self.threads, self._prefetch)):
            # The target knows what is shared, not the reader: a thread must not keep it alive.
            thread = threading.Thread(target=self._shared.work, name=f"caffe data reader {i}", daemon=True)
            thread.start()
            self._workers.append(thread)

    def _check(self) -> None:
        self._shared.check_process()
        if not self._close.alive:
            raise DataError(f"the reader of {self._shared.about} is closed")


class _Shared:
    """What a reader and its threads share. `changed` guards all but the cursor."""

    def __init__(self, db: DB, batch_size: int, fill: Fill, rank: int, num_ranks: int):
        self.db, self.batch_size, self.fill, self.rank, self.num_ranks = db, batch_size, fill, rank, num_ranks
        self.about = f"{db.backend} '{db.source}'"
        self._pid = os.getpid()
        self.changed = threading.Condition()
        self._reading = threading.Lock()  # held while records are read, so that batches keep their order
        self._stopped = self._closed = False
        self._free: deque[Batch] = deque()
        self._lent: set[Batch] = set()
        self._ready: dict[int, Batch | BaseException] = {}  # by number of the batch since the start
        self._given = self._read = 0
        try:
            self._cursor: Cursor = db.cursor()
            if not self._cursor.valid():
                raise DataError(f"{self.about}: it has no records; was it converted from an empty list?")
            self.first_record: Record = (self._cursor.key(), self._cursor.value())
        except DataError:
            db.close()
            raise
        self._place = self._epoch = 0  # of the cursor

    def check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkError(
                f"{self.about}: its reader was made before fork, and threads do not survive a fork; make the "
                "net in the child process, or start the process by spawn"
            )

    # -- the owner's side ---------------------------------------------------------------------------

    def restart(self, position: int, prefetch: int) -> None:
        """Begin at this place of the stream, with no batch ready. No thread may be running."""
        self._stopped = False
        self._free = deque(Batch(self.batch_size) for _ in range(prefetch))
        self._lent, self._ready = set(), {}
        self._given = self._read = 0
        entries = self.db.entries
        start = position + self.rank
        if start < self._place or entries:
            self._cursor.seek_to_first()
            self._place = self._epoch = 0
        if entries:
            self._epoch, ahead = divmod(start, entries)
            self._place = start - ahead
        self._advance(start - self._place)

    def take(self) -> Batch:
        with self.changed:
            while (batch := self._ready.get(self._given)) is None:
                if self._closed:
                    raise DataError(f"{self.about}: its reader was closed")
                self.changed.wait()
            if isinstance(batch, CaffeError):
                raise batch
            if isinstance(batch, BaseException):
                raise DataError(f"{self.about}: its reader failed: {batch!r}") from batch
            del self._ready[self._given]
            self._given += 1
            self._lent.add(batch)
            return batch

    def release(self, batch: Batch) -> None:
        with self.changed:
            if batch in self._lent:
                self._lent.remove(batch)
                self._free.append(batch)
                self.changed.notify_all()

    def stop(self, workers: Sequence[threading.Thread]) -> None:
        """End the threads; each finishes the batch that it is working on, which is waited for unless one
        of them is the caller (a reader that the garbage collector found there)."""
        with self.changed:
            self._stopped = True
            self.changed.notify_all()
        if threading.current_thread() not in workers:
            for worker in workers:
                worker.join()

    def close(self, workers: Sequence[threading.Thread]) -> None:
        if os.getpid() == self._pid:  # else its locks may be held by threads that are not here
            self._closed = True
            self.stop(workers)
            self.db.close()

    # -- the threads' side --------------------------------------------------------------------------

    def work(self) -> None:
        """Make batches until stopped. A slot is taken before records are read, so that the earliest
        batch always has one and nothing can wait for ever."""
        while (batch := self._free_slot()) is not None:
            number = -1
            try:
                with self._reading:
                    if self._stopped:
                        return
                    number, self._read = self._read, self._read + 1
                    records = self._read_batch(batch)
                self.fill(records, batch)
                self._publish(number, batch)
            except BaseException as error:  # it goes to the thread that waits for the batch
                self._publish(number, error)

    def _publish(self, number: int, result: Batch | BaseException) -> None:
        with self.changed:
            self._ready[number] = result
            if not isinstance(result, Batch):
                self._stopped = True
            self.changed.notify_all()

    def _free_slot(self) -> Batch | None:
        with self.changed:
            while not self._free and not self._stopped:
                self.changed.wait()
            return None if self._stopped else self._free.popleft()

    def _read_batch(self, batch: Batch) -> list[Record]:
        cursor, records = self._cursor, []
        batch.first, batch.epoch = self._place, self._epoch
        for _ in range(self.batch_size):
            records.append((cursor.key(), cursor.value()))
            batch.last = self._place
            self._advance(self.num_ranks)
        self.db.check()
        batch.position = self._place - self.rank
        return records

    def _advance(self, count: int) -> None:
        """Move the cursor on in the endless stream."""
        cursor = self._cursor
        self._place += count
        if count == 1:
            cursor.next()
            count = 0
        while count or not cursor.valid():
            if not cursor.valid():
                cursor.seek_to_first()
                self._epoch += 1
                if not cursor.valid():
                    raise DataError(f"{self.about}: its records are gone")
            count -= cursor.skip(count)
