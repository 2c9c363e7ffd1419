"""Places, freshness, capacity, and views that users hold."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest

from caffe.places import aligned_zeros
from caffe.synced_mem import SyncedMem
from fake_engine import FakePlace


@pytest.fixture
def place() -> FakePlace:
    return FakePlace()


def reversed_(mem: SyncedMem) -> tuple[str, int]:
    return ("reversed", mem.size)


def test_memory_is_zero_and_allocated_at_first_use() -> None:
    mem = SyncedMem(5)
    assert mem.capacity == 0
    assert mem.read()[:5].tolist() == [0] * 5
    assert mem.capacity == 5


def test_host_memory_is_aligned() -> None:
    for size in (1, 3, 1000):
        assert SyncedMem(size).read().ctypes.data % 64 == 0


def test_reading_elsewhere_copies_once(place: FakePlace) -> None:
    mem = SyncedMem(3)
    mem.write()[:3] = [1, 2, 3]
    for _ in range(3):
        assert mem.read_in(place, reversed_(mem)).cells.tolist() == [3, 2, 1]
    assert place.counts["from_host"] == 1
    assert mem.read()[:3].tolist() == [1, 2, 3]
    assert place.counts["to_host"] == 0


def test_writing_elsewhere_makes_the_host_stale_until_read(place: FakePlace) -> None:
    mem = SyncedMem(3)
    mem.write()[:3] = 7
    mem.write_in(place, reversed_(mem)).cells[...] = [1, 2, 3]
    assert not mem.host_fresh
    assert mem.read()[:3].tolist() == [3, 2, 1]
    mem.read()
    assert place.counts == {"allocate": 1, "to_host": 1}


def test_writing_on_the_host_makes_the_place_stale(place: FakePlace) -> None:
    mem = SyncedMem(2)
    mem.read_in(place, reversed_(mem))
    mem.modify()[:2] = [5, 6]
    assert mem.read_in(place, reversed_(mem)).cells.tolist() == [6, 5]
    assert place.counts["from_host"] == 2


def test_two_layouts_of_one_place_convert_within_it(place: FakePlace) -> None:
    mem = SyncedMem(6)
    matrix = ("transposed", 2, 3)
    mem.write_in(place, matrix).cells[...] = [0, 3, 1, 4, 2, 5]
    assert mem.read_in(place, reversed_(mem)).cells.tolist() == [5, 4, 3, 2, 1, 0]
    assert place.counts["convert"] == 1 and place.counts["to_host"] == 0
    # Writing one layout makes the other stale.
    mem.modify_in(place, reversed_(mem)).cells[...] = 9
    assert mem.read_in(place, matrix).cells.tolist() == [9] * 6
    assert mem.fresh_in(place) == [reversed_(mem), matrix] or set(mem.fresh_in(place)) == {
        reversed_(mem),
        matrix,
    }


def test_modify_elsewhere_starts_from_the_fresh_values(place: FakePlace) -> None:
    mem = SyncedMem(2)
    mem.write()[:2] = [1, 2]
    mem.modify_in(place, reversed_(mem)).cells[...] += 10
    assert mem.read()[:2].tolist() == [11, 12]


def test_places_take_float32_only(place: FakePlace) -> None:
    with pytest.raises(TypeError, match="float32"):
        SyncedMem(2, np.float64).read_in(place, ("reversed", 2))


def test_resize_keeps_memory_and_values_while_they_fit() -> None:
    mem = SyncedMem(6)
    mem.write()[:6] = range(6)
    before = mem.host
    mem.resize(3)
    assert mem.read() is before and mem.read()[:3].tolist() == [0, 1, 2]
    mem.resize(6)
    assert mem.read() is before and mem.read()[:6].tolist() == list(range(6))
    mem.resize(7)
    assert mem.read() is not before and mem.read()[:7].tolist() == [0] * 7


def test_resize_forgets_copies_elsewhere_and_never_shows_leftovers(place: FakePlace) -> None:
    mem = SyncedMem(4)
    mem.write()[:4] = 5
    mem.write_in(place, reversed_(mem)).cells[...] = 8
    mem.resize(2)
    assert mem.read()[:2].tolist() == [0, 0]
    assert place.counts["to_host"] == 0


def test_a_view_is_tracked_while_any_slice_of_it_lives() -> None:
    mem = SyncedMem(12)
    view = mem.export().reshape(3, 4)
    part = view[1:][:, ::2].T
    del view
    gc.collect()
    assert mem.exporter() is not None
    part[...] = 3
    assert mem.read()[:12].sum() == 3 * part.size
    del part
    gc.collect()
    assert mem.exporter() is None


def test_two_exports_share_one_exporter() -> None:
    mem = SyncedMem(2)
    a, b = mem.export(), mem.export()
    a[0] = 4
    assert b[0] == 4
    del a
    assert mem.exporter() is not None
    del b
    assert mem.exporter() is None


def test_values_written_through_a_view_reach_the_place(place: FakePlace) -> None:
    mem = SyncedMem(2)
    view = mem.export()
    mem.read_in(place, reversed_(mem))
    view[...] = [1, 2]
    mem.host_written()  # what a net does before a pass
    assert mem.read_in(place, reversed_(mem)).cells.tolist() == [2, 1]


def test_values_computed_in_the_place_reach_the_view(place: FakePlace) -> None:
    mem = SyncedMem(2)
    view = mem.export()
    mem.write_in(place, reversed_(mem)).cells[...] = [8, 9]
    mem.refresh_view()  # what a net does after a pass
    assert view.tolist() == [9, 8]


def test_without_a_view_a_pass_copies_nothing(place: FakePlace) -> None:
    mem = SyncedMem(2)
    mem.export()[...] = 1
    mem.write_in(place, reversed_(mem)).cells[...] = 2
    mem.host_written()
    mem.refresh_view()
    assert place.counts["to_host"] == 0 and not mem.host_fresh


def test_memory_behind_a_view_is_not_taken_when_it_grows() -> None:
    mem = SyncedMem(2)
    view = mem.export()
    view[...] = 1
    mem.resize(1000)
    mem.write()[:1000] = 5
    assert view.tolist() == [1, 1]
    assert mem.exporter() is None


def test_aliases_see_one_freshness(place: FakePlace) -> None:
    mem = SyncedMem(2)
    alias = mem
    alias.write_in(place, reversed_(mem)).cells[...] = 4
    assert mem.read()[:2].tolist() == [4, 4]
    assert alias.host_fresh


def test_clearing_writes_nothing_until_somebody_reads() -> None:
    mem = SyncedMem(4)
    mem.write()[:] = 5
    mem.clear()
    assert mem.is_zero and mem.host is not None and mem.host[0] == 5
    assert not mem.read()[:4].any() and not mem.is_zero
    view = mem.export()
    view[...] = 3
    mem.clear()
    assert not view.any()
    view[...] = 2
    mem.host_written()
    assert np.array_equal(mem.read()[:4], view)


def test_deferred_values_are_computed_when_read() -> None:
    mem, calls = SyncedMem(3), []

    def compute() -> None:
        calls.append(1)
        mem.write()[:] = 7

    mem.defer(compute)
    assert not mem.is_zero and not calls
    assert mem.read()[0] == 7 and mem.read()[0] == 7 and len(calls) == 1
    mem.defer(compute)
    mem.write()[:] = 1
    assert mem.read()[0] == 1 and len(calls) == 1
    view = mem.export()
    mem.defer(compute)
    mem.refresh_view()
    assert view[0] == 7


def test_lost_values_raise_each_time_they_are_read() -> None:
    mem = SyncedMem(3)

    def lost() -> None:
        raise ValueError("lost")

    mem.defer(lost)
    for _ in range(2):
        with pytest.raises(ValueError, match="lost"):
            mem.read()
    mem.clear()
    assert not mem.read()[:3].any()


def test_the_version_rises_with_every_write() -> None:
    mem = SyncedMem(3)
    seen = [mem.version]
    for change in (mem.write, mem.modify, mem.clear, mem.export, lambda: mem.resize(5)):
        change()
        assert mem.version > seen[-1]
        seen.append(mem.version)
    mem.read()
    assert mem.version == seen[-1]
    view = mem.export()
    before = mem.version
    mem.host_written()
    assert mem.version > before or view is None


def test_borrowed_values_are_copied_only_when_one_of_the_two_changes() -> None:
    place, layout = FakePlace(), ("reversed", 3)
    lender, borrower = SyncedMem(3), SyncedMem(3)
    lender.write()[:3] = [1, 2, 3]
    borrower.borrow(lender, place, layout)
    assert borrower.read_in(place, layout) is lender.read_in(place, layout)
    assert borrower.borrows_from(lender) and not borrower.is_zero
    lender.write()[:3] = 0
    assert not borrower.borrows_from(lender)
    assert np.array_equal(borrower.read()[:3], [1, 2, 3])
    borrower.borrow(lender, place, layout)
    borrower.write()[:3] = 5
    assert not lender.read()[:3].any()
    borrower.borrow(lender, place, layout)
    assert not borrower.read()[:3].any()


def test_host_memory_is_exchanged_unless_somebody_looks() -> None:
    mem = SyncedMem(3)
    view = mem.export()
    other = np.arange(5, dtype=np.float32)
    assert mem.exchange(other) is None
    assert mem.exchange(other.astype(np.float64)) is None
    assert mem.exchange(other[:2]) is None
    view[:] = 7
    assert mem.read()[:3].tolist() == [7, 7, 7]
    del view
    before, version = mem.read(), mem.version
    assert mem.exchange(other) is before
    assert mem.read() is other
    assert mem.version > version
    assert mem.export().tolist() == [0, 1, 2]


def test_exchanged_host_memory_makes_other_places_stale() -> None:
    place, mem = FakePlace(), SyncedMem(3)
    mem.write_in(place, ("reversed", 3))
    mem.exchange(np.arange(3, dtype=np.float32))
    assert mem.host_fresh
    assert not mem.fresh_in(place)


def resident() -> int:
    """Bytes of this process that lie in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_large_memory_is_there_when_touched_and_gone_when_freed() -> None:
    """Also after the C library has seen larger blocks come and go, from when on it keeps such holes."""
    size = 6 << 20
    for _ in range(2):
        larger = np.ones(30 << 20, np.uint8)
        del larger
    before = resident()
    held = [aligned_zeros(size, np.dtype(np.uint8)) for _ in range(8)]
    assert resident() - before < size
    for memory in held:
        assert memory.ctypes.data % 64 == 0 and not memory.any()
        memory[...] = 1
    full = resident()
    assert full - before > 7 * size
    del memory, held[:-1]
    assert full - resident() > 6 * size


def test_memory_of_all_sizes_is_zero_and_its_own() -> None:
    sizes = [1, 15, 1 << 18, (1 << 18) + 1, 1 << 19, (1 << 19) + 3, 3 << 19, (1 << 21) + 5]
    arrays = [aligned_zeros(size, np.float32) for size in sizes]
    for k, (array, size) in enumerate(zip(arrays, sizes, strict=True)):
        assert array.shape == (size,) and array.flags.writeable and array.ctypes.data % 64 == 0
        assert not array.any()
        array[...] = k + 1
    for k, array in enumerate(arrays):
        assert (array == k + 1).all()
