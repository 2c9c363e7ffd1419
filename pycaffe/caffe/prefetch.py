"""Prefetcher: threads that make whole batches ahead of the net.

A source is an endless stream of items (records, images, windows), each with a place: 0, 1, 2 ... Batches
depend on the place alone, so that prefetch depth and number of threads do not change them, and a run
that seeks to the place where another one stopped goes on exactly as that one would have.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .errors import CaffeError, DataError, ForkError
from .places import aligned_zeros
from .synced_mem import SyncedMem

# So few numbers are copied: two arrays in turn cost more, since they take twice as much of the caches, and
# have to be found anew each time.
_COPIED = 1 << 16


class Batch:
    """A prefetched batch: memory that is used again after release().

    data: (N, C, h, w) float32. labels: (N,) float32.
    first, last: places of its first and last item in the stream. position: the place from which the
    next batch is read. epoch: how many times the data had been read through before the first item.
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
                self._memory = aligned_zeros(count, np.dtype(np.float32))
            self.data = self._memory[:count].reshape(wanted)

    def give_data(self, mem: SyncedMem) -> None:
        """Make data the values of mem, which has the size for it; without copying, where they are many and
        nobody holds a view of mem. The batch's data are undefined afterwards."""
        memory = None if mem.size < _COPIED else mem.exchange(self._memory)
        if memory is None:
            np.copyto(mem.write()[: mem.size], self.data.reshape(-1))
            return
        self._memory = memory
        self.data = memory[:0].reshape(len(self.labels), 0)


class Source(ABC):
    """An endless stream of items. about: how errors begin, e.g. "LMDB 'train_lmdb'". entries: how many
    items it repeats; None while that is not known."""

    about: str = ""
    entries: int | None = None

    @abstractmethod
    def seek(self, position: int) -> None:
        """Let the next batch begin at this place. Nothing reads meanwhile."""

    @abstractmethod
    def read(self, batch: Batch) -> Iterable[Any]:
        """The items of the next batch; sets its first and epoch before they are taken, its last and position
        when all have been. One thread at a time."""

    @abstractmethod
    def close(self) -> None:
        """Release files; harmless when repeated."""


class Places(Source):
    """A stream whose items are found by their place: reading gives the batch's places, as a range.

    entries: None where items do not repeat.
    With several ranks, rank r reads places r, r + num_ranks, r + 2 num_ranks ...
    """

    def __init__(self, about: str, entries: int | None, batch_size: int, rank: int = 0, num_ranks: int = 1):
        self.about, self.entries = about, entries
        self._batch_size, self._rank, self._num_ranks = batch_size, rank, num_ranks
        self._position = 0

    def seek(self, position: int) -> None:
        self._position = position

    def read(self, batch: Batch) -> range:
        first = self._position + self._rank
        self._position += self._batch_size * self._num_ranks
        places = range(first, self._position + self._rank, self._num_ranks)
        batch.first, batch.last, batch.position = first, places[-1], self._position
        batch.epoch = first // self.entries if self.entries else 0
        return places

    def close(self) -> None:
        """There is nothing to release."""


# fill(items, batch): make all that a source reads into batch.data and batch.labels. items may be an iterator
# that reads as it goes, so that one item at a time is in memory.
Fill = Callable[[Any, Batch], None]


class Prefetcher:
    """Endless batches of a source, made ahead by daemon threads.

    fill: what makes a batch of items; called in the threads, must not refer to the prefetcher's owner.
    prefetch: number of batches kept ready, which bounds the memory. threads: how many work at once, each on
    a batch of its own (for images that take long to decode); an attribute that may be set before the
    first batch. 0: next_batch() makes each batch itself, for batches that cost less than to be handed from
    one thread to another. position: the place to begin at.

    Threads start with the first next_batch(), and end with close() or when the prefetcher is forgotten.
    What goes wrong in one is raised by next_batch(), after the batches before it. A forked child gets
    ForkError. One thread at a time may use a prefetcher.
    """

    def __init__(
        self,
        source: Source,
        fill: Fill,
        batch_size: int,
        *,
        prefetch: int = 4,
        threads: int = 1,
        position: int = 0,
    ):
        if batch_size < 1 or prefetch < 1 or threads < 0:
            source.close()
            numbers = f"batch_size (={batch_size}) and prefetch (={prefetch}) must be 1 or more"
            raise DataError(f"{numbers}, threads (={threads}) 0 or more")
        self._shared = _Shared(source, fill, batch_size)
        self._prefetch, self.threads = prefetch, threads
        self._workers: list[threading.Thread] = []
        self._position = position
        self._close = weakref.finalize(self, _Shared.close, self._shared, self._workers)

    @property
    def entries(self) -> int | None:
        """How many items the source repeats; None while that is not known."""
        return self._shared.source.entries

    @property
    def position(self) -> int:
        """The place in the stream after all items that next_batch() has given out, however many more
        have been read ahead."""
        return self._position

    def seek(self, position: int) -> None:
        """Let the next batch begin at this place of the stream (what `position` said then)."""
        if position < 0:
            raise DataError(f"a position must be 0 or more, not {position}")
        self.check()
        self._shared.stop(self._workers)
        self._workers.clear()
        self._position = position

    def next_batch(self) -> Batch:
        """The next batch; it stays as it is until it is handed to release()."""
        self.check()
        if not self._shared.begun:
            self._start()
        batch = self._shared.take()
        self._position = batch.position
        return batch

    def peek(self) -> Batch | None:
        """The batch that next_batch() will give, if it is ready: to be read only. Does not wait."""
        self.check()
        return self._shared.peek() if self._shared.begun else None  # before the first batch, or after a seek

    def release(self, batch: Batch) -> None:
        """Let the memory of a batch be used for another one. (After a seek, it is merely dropped.)"""
        self._shared.check_process()
        self._shared.release(batch)

    def close(self) -> None:
        """End the threads and close the source; harmless when repeated."""
        self._close()

    def check(self) -> None:
        """Raises DataError when closed, ForkError in a forked child."""
        self._shared.check_process()
        if not self._close.alive:
            raise DataError(f"the reader of {self._shared.about} is closed")

    def _start(self) -> None:
        threads = min(self.threads, self._prefetch)
        self._shared.restart(self._position, self._prefetch, threads)
        for i in range(threads):
            # The target knows what is shared, not the prefetcher: a thread must not keep it alive.
            thread = threading.Thread(target=self._shared.work, name=f"caffe data reader {i}", daemon=True)
            thread.start()
            self._workers.append(thread)


class _Shared:
    """What a prefetcher and its threads share. `changed` guards all but the source."""

    def __init__(self, source: Source, fill: Fill, batch_size: int):
        self.source, self.fill, self.batch_size = source, fill, batch_size
        self.about = source.about
        self._pid = os.getpid()
        self.changed = threading.Condition()
        self._reading = threading.Lock()  # held while items are read, so that batches keep their order
        self.begun = False  # does what is ready follow the last batch given?
        self._stopped = self._closed = False
        self._threads = 0
        self._free: deque[Batch] = deque()
        self._lent: set[Batch] = set()
        self._ready: dict[int, Batch | BaseException] = {}  # by number of the batch since the start
        self._given = self._read = 0

    def check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkError(
                f"{self.about}: its reader was made before fork, and threads do not survive a fork; make the "
                "net in the child process, or start the process by spawn"
            )

    # -- the owner's side ---------------------------------------------------------------------------

    def restart(self, position: int, prefetch: int, threads: int) -> None:
        """Begin at this place of the stream, with no batch ready. No thread may be running."""
        self._stopped = False
        self._threads = threads
        self._free = deque(Batch(self.batch_size) for _ in range(prefetch if threads else 1))
        self._lent, self._ready = set(), {}
        self._given = self._read = 0
        self.source.seek(position)
        self.begun = True

    def take(self) -> Batch:
        if not self._threads and self._given not in self._ready:
            self.begun = False  # whoever interrupts this, from the keyboard say, leaves the source anywhere
            self._make(self._free.popleft() if self._free else Batch(self.batch_size))
            self.begun = True
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

    def peek(self) -> Batch | None:
        with self.changed:
            batch = self._ready.get(self._given)
            return batch if isinstance(batch, Batch) else None

    def release(self, batch: Batch) -> None:
        with self.changed:
            if batch in self._lent:
                self._lent.remove(batch)
                self._free.append(batch)
                self.changed.notify_all()

    def stop(self, workers: Sequence[threading.Thread]) -> None:
        """End the threads; each finishes the batch that it is working on, which is waited for unless one
        of them is the caller (a prefetcher that the garbage collector found there)."""
        with self.changed:
            self._stopped = True
            self.begun = False
            self.changed.notify_all()
        if threading.current_thread() not in workers:
            for worker in workers:
                worker.join()

    def close(self, workers: Sequence[threading.Thread]) -> None:
        if os.getpid() == self._pid:  # else its locks may be held by threads that are not here
            self._closed = True
            self.stop(workers)
            self.source.close()

    # -- the threads' side --------------------------------------------------------------------------

    def work(self) -> None:
        """Make batches until stopped. A slot is taken before items are read, so that the earliest
        batch always has one and nothing can wait for ever."""
        while (batch := self._free_slot()) is not None:
            self._make(batch)

    # -- in a thread, or in the owner's ------------------------------------------------------------------

    def _make(self, batch: Batch) -> None:
        number = -1
        try:
            with self._reading:
                if self._stopped:
                    return
                number, self._read = self._read, self._read + 1
                items = self.source.read(batch)
                if self._threads < 2:
                    self.fill(items, batch)
                elif not isinstance(items, Sequence):
                    items = list(items)
            if self._threads > 1:
                self.fill(items, batch)
            self._publish(number, batch)
        except BaseException as error:
            if not (self._threads or isinstance(error, Exception)):
                raise  # KeyboardInterrupt and the like, which were meant for the owner
            self._publish(number, error)  # it goes to the thread that waits for the batch

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
