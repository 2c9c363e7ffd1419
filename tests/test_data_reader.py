"""DataReader: the order of records, places, threads, and their end."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from caffe.data_reader import Batch, DataReader, Record, Records
from caffe.db import open_db
from caffe.errors import DataError, ForkError

COUNT = 10


@pytest.fixture(params=["lmdb", "leveldb"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """A database of the records 0 .. 9, and its backend."""
    return write(tmp_path / "db", request.param), request.param


def write(path: Path, backend: str = "lmdb", count: int = COUNT, size: int = 0, form: bytes = b"%d") -> str:
    with open_db(str(path), backend, "new") as db:
        transaction = db.transaction()
        for i in range(count):
            transaction.put(b"%05d" % i, form % i + bytes(size))
        transaction.commit()
    return str(path)


def fill(records: Iterable[Record], batch: Batch) -> None:
    batch.reshape((1, 1, 1))
    batch.labels[:] = [int(value.rstrip(b"\0")) for _, value in records]
    batch.data[...] = batch.labels.reshape(-1, 1, 1, 1)


def take(reader: DataReader, count: int) -> list[list[int]]:
    out = []
    for _ in range(count):
        batch = reader.next_batch()
        assert batch.data.ravel().tolist() == batch.labels.tolist()
        out.append(batch.labels.astype(int).tolist())
        reader.release(batch)
    return out


def stream(start: int, step: int, count: int) -> list[int]:
    return [(start + step * i) % COUNT for i in range(count)]


_others: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def _know_the_threads_of_others() -> None:
    """A net that another test still holds (the default model, say) reads on."""
    _others.clear()
    _others.update(threading.enumerate())


def reader_threads() -> list[threading.Thread]:
    """Those that this test has started."""
    return [t for t in threading.enumerate() if t.name.startswith("caffe data reader") and t not in _others]


@pytest.mark.parametrize("prefetch", [1, 2, 5])
@pytest.mark.parametrize("threads", [0, 1, 4])
@pytest.mark.parametrize("batch_size", [1, 3, 10, 23])
def test_records_come_in_order_for_ever(
    source: tuple[str, str], batch_size: int, threads: int, prefetch: int
) -> None:
    reader = DataReader(*source, batch_size, fill, prefetch=prefetch, threads=threads)
    found = take(reader, 9)
    assert sum(found, []) == stream(0, 1, 9 * batch_size)
    assert reader.position == 9 * batch_size
    reader.close()


def test_each_batch_knows_where_it_comes_from(source: tuple[str, str]) -> None:
    reader = DataReader(*source, 4, fill, skip=3)
    found = []
    for _ in range(5):
        batch = reader.next_batch()
        found.append((batch.first, batch.last, batch.position, batch.epoch))
        reader.release(batch)
    assert found == [(3, 6, 7, 0), (7, 10, 11, 0), (11, 14, 15, 1), (15, 18, 19, 1), (19, 22, 23, 1)]
    reader.close()


@pytest.mark.parametrize("num_ranks", [2, 3, 12])
def test_ranks_share_the_stream(source: tuple[str, str], num_ranks: int) -> None:
    seen: list[int] = []
    for rank in range(num_ranks):
        reader = DataReader(*source, 3, fill, rank=rank, num_ranks=num_ranks)
        records = sum(take(reader, 4), [])
        assert records == stream(rank, num_ranks, 12)
        assert reader.position == 12 * num_ranks
        seen += records
        reader.close()
    assert sorted(seen) == sorted(stream(0, 1, 12 * num_ranks))


@pytest.mark.parametrize(("rank", "num_ranks"), [(0, 1), (1, 3)])
@pytest.mark.parametrize("taken", [0, 1, 7])
def test_seeking_to_a_position_goes_on_as_the_first_run(
    source: tuple[str, str], taken: int, rank: int, num_ranks: int
) -> None:
    def new() -> DataReader:
        return DataReader(*source, 3, fill, prefetch=4, rank=rank, num_ranks=num_ranks)

    first, second = new(), new()
    take(first, taken)
    position = first.position  # batches read ahead do not count
    wanted = take(first, 5)
    second.seek(position)
    assert second.position == position
    assert take(second, 5) == wanted
    first.seek(position)  # also back, in a reader that is running
    assert take(first, 5) == wanted
    first.close()
    second.close()


def test_a_batch_that_is_held_stays_as_it_is(source: tuple[str, str]) -> None:
    reader = DataReader(*source, 2, fill, prefetch=3)
    held = [reader.next_batch(), reader.next_batch()]
    take(reader, 6)  # round and round through the one that is left
    assert [b.labels.tolist() for b in held] == [[0, 1], [2, 3]]
    reader.seek(0)
    take(reader, 6)
    assert [b.labels.tolist() for b in held] == [[0, 1], [2, 3]]
    reader.release(held[0])  # of before the seek: dropped
    assert take(reader, 3) == [[2, 3], [4, 5], [6, 7]]
    reader.close()


def test_peeking_takes_nothing(source: tuple[str, str]) -> None:
    reader = DataReader(*source, 2, fill, prefetch=2)
    assert reader.peek() is None  # nothing has been asked for
    for i in range(5):
        batch = reader.next_batch()
        assert batch.labels.tolist() == stream(2 * i, 1, 2)
        reader.release(batch)
        for _ in range(1000):
            ahead = reader.peek()
            if ahead is not None:
                break
            time.sleep(0.01)
        assert ahead is not None and ahead is reader.peek()
        assert reader.position == 2 * i + 2
    assert reader.next_batch() is ahead
    reader.seek(3)
    assert reader.peek() is None
    reader.close()
    with pytest.raises(DataError, match="closed"):
        reader.peek()


def test_memory_is_bounded_by_prefetch(source: tuple[str, str]) -> None:
    batches = set()

    def note(records: Iterable[Record], batch: Batch) -> None:
        batches.add(id(batch))
        fill(records, batch)

    reader = DataReader(*source, 2, note, prefetch=3, threads=2)
    take(reader, 20)
    assert len(batches) <= 3
    reader.close()


def test_no_thread_before_the_first_batch(source: tuple[str, str]) -> None:
    reader = DataReader(*source, 2, fill)
    assert reader.first_record() == (b"00000", b"0")
    assert not reader_threads()
    reader.close()


def test_close_ends_the_threads(source: tuple[str, str]) -> None:
    reader = DataReader(*source, 2, fill, threads=3)
    take(reader, 2)
    assert len(reader_threads()) == 3
    reader.close()
    assert not reader_threads()
    reader.close()
    with pytest.raises(DataError, match="is closed"):
        reader.next_batch()


def test_a_forgotten_reader_ends_its_threads(source: tuple[str, str]) -> None:
    reader = DataReader(*source, 2, fill, threads=2)
    take(reader, 1)
    alive = weakref.ref(reader)
    del reader
    gc.collect()
    assert alive() is None
    assert not reader_threads()


def test_a_reader_that_a_reader_thread_collects_does_not_hang(tmp_path: Path) -> None:
    """The garbage collector may find a dead reader in any thread, also in one of its own."""
    holder: list[object] = []
    forgotten, collected = threading.Event(), threading.Event()

    def collect(records: Iterable[Record], batch: Batch) -> None:
        fill(records, batch)
        if batch.first == 4:
            forgotten.wait(10)
            holder.clear()
            gc.collect()
            collected.set()

    reader = DataReader(write(tmp_path / "db"), "lmdb", 2, collect, prefetch=4, threads=2)
    loop: list[object] = [reader]
    loop.append(loop)  # only the collector can free it
    holder.append(loop)
    batch = reader.next_batch()
    del reader, loop
    forgotten.set()
    assert collected.wait(10)
    assert batch.labels.tolist() == [0, 1]
    deadline = time.monotonic() + 10
    while reader_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not reader_threads()


# -- what goes wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_a_fault_comes_after_the_batches_before_it_and_stays(source: tuple[str, str], threads: int) -> None:
    def faulty(records: Iterable[Record], batch: Batch) -> None:
        records = list(records)
        if (b"00005", b"5") in records:
            raise DataError("record 5 is bad")
        time.sleep(0.002 * (batch.first == 2))  # the batch before the fault is the last to be ready
        fill(records, batch)

    reader = DataReader(*source, 2, faulty, prefetch=4, threads=threads)
    assert take(reader, 2) == [[0, 1], [2, 3]]
    for _ in range(2):
        with pytest.raises(DataError, match="record 5 is bad"):
            reader.next_batch()
    reader.seek(6)
    assert take(reader, 1) == [[6, 7]]
    reader.close()


@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit(3), MemoryError()])
def test_a_reader_thread_that_dies_says_why(source: tuple[str, str], error: BaseException) -> None:
    def dies(records: Iterable[Record], batch: Batch) -> None:
        raise error

    reader = DataReader(*source, 2, dies)
    with pytest.raises(DataError, match=f"its reader failed: {type(error).__name__}") as caught:
        reader.next_batch()
    assert caught.value.__cause__ is error
    reader.close()


def test_without_threads_an_interruption_is_the_callers(source: tuple[str, str]) -> None:
    """The batch that it hit is made again."""
    interrupt = iter([False, True, False, True, True, False, False])

    def interrupted(records: Iterable[Record], batch: Batch) -> None:
        fill(records, batch)
        if next(interrupt):
            raise KeyboardInterrupt

    reader = DataReader(*source, 2, interrupted, threads=0)
    found = []
    for _ in range(7):
        try:
            found += take(reader, 1)
        except KeyboardInterrupt:
            found.append([])
    assert found == [[0, 1], [], [2, 3], [], [], [4, 5], [6, 7]]
    assert not reader_threads()
    reader.close()


def test_without_threads_batches_may_be_held(source: tuple[str, str]) -> None:
    reader = DataReader(*source, 2, fill, threads=0)
    held = [reader.next_batch() for _ in range(3)]
    take(reader, 3)
    assert [b.labels.tolist() for b in held] == [[0, 1], [2, 3], [4, 5]]
    for batch in held:
        reader.release(batch)
    assert take(reader, 1) == [[2, 3]]
    reader.close()


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: os.truncate(path / "data.mdb", 20_000), "truncated or damaged"),
        (shutil.rmtree, "was deleted while it was being read"),
    ],
    ids=["truncated", "deleted"],
)
def test_a_database_harmed_while_it_is_read(
    tmp_path: Path, harm: Callable[[Path], object], message: str, at_once: bool
) -> None:
    """At the latest where what was read in one go is used up, long before the database begins anew."""

    def make(records: Records, batch: Batch) -> None:
        batch.reshape((1, 1, 1))
        if not (at_once and records.rows(2000, lambda pieces: True)):
            list(records)

    source = write(tmp_path / "db", count=5000, size=1000, form=b"%04d")
    reader = DataReader(source, "lmdb", 10, make, prefetch=2)
    reader.release(reader.next_batch())
    harm(tmp_path / "db")
    with pytest.raises(DataError, match=message):
        for _ in range(150):
            reader.release(reader.next_batch())
    reader.close()


def test_an_empty_database(tmp_path: Path) -> None:
    for backend in ("lmdb", "leveldb"):
        source = write(tmp_path / backend, backend, count=0)
        with pytest.raises(DataError, match="it has no records; was it converted from an empty list"):
            DataReader(source, backend, 2, fill)


@pytest.mark.parametrize(
    "options",
    [{"batch_size": 0}, {"prefetch": 0}, {"threads": -1}, {"rank": 2, "num_ranks": 2}, {"rank": -1}],
)
def test_impossible_numbers(source: tuple[str, str], options: dict[str, int]) -> None:
    with pytest.raises(DataError, match="must"):
        DataReader(*source, fill=fill, **{"batch_size": 1, **options})


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs os.fork")
def test_a_forked_child_is_told_so(source: tuple[str, str]) -> None:
    reader = DataReader(*source, 2, fill)
    batch = reader.next_batch()
    pid = os.fork()
    if pid == 0:
        refused = 0
        for use in (reader.next_batch, lambda: reader.release(batch), lambda: reader.seek(0)):
            try:
                use()
            except ForkError:
                refused += 1
        reader.close()  # what a child does at its end must not hang
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert take(reader, 1) == [[2, 3]]
    reader.close()


def test_reshape_reuses_memory() -> None:
    batch = Batch(2)
    batch.reshape((3, 4, 4))
    memory = batch.data.ctypes.data
    batch.data[...] = 1
    batch.reshape((1, 2, 2))
    assert (batch.data.shape, batch.data.ctypes.data) == ((2, 1, 2, 2), memory)
    batch.reshape((3, 5, 5))
    assert batch.data.shape == (2, 3, 5, 5)
    assert batch.data.dtype == np.float32
