"""Device memory: the pool, what is copied when, and errors as this project's."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from caffe.errors import EngineError
from caffe.synced_mem import SyncedMem
from conftest import use_gpu
from engines.cuda import support


@pytest.fixture(autouse=True)
def _gpu() -> None:
    use_gpu()


def test_round_trip_copies_once_each_way() -> None:
    from caffe.engines.cuda import place

    mem = SyncedMem(5)
    mem.write()[:5] = range(5)
    before = place.PLACE.counts.copy()
    for _ in range(3):
        place.read(mem)
    place.modify(mem)
    assert mem.read()[:5].tolist() == [0, 1, 2, 3, 4]
    mem.read()
    copies = place.PLACE.counts - before
    assert copies == {"to_device": 1, "to_device_bytes": 20, "to_host": 1, "to_host_bytes": 20}


def test_zeros_are_not_copied() -> None:
    from caffe.engines.cuda import place

    mem = SyncedMem(1000)
    before = place.PLACE.counts.copy()
    place.read(mem)
    mem.clear()
    place.modify(mem)
    assert place.PLACE.counts == before
    assert not mem.read()[:1000].any()


def test_pool_gives_the_same_memory_again() -> None:
    from caffe.engines.cuda.place import Pool

    pool = Pool(rounding=256)
    allocation, size = pool.take(1000)
    assert size == 1024
    pool.give(allocation, size)
    assert pool.kept == 1024
    assert pool.take(900)[0] is allocation and pool.kept == 0
    pool.give(allocation, size)
    pool.release()
    assert pool.kept == 0


def test_the_pool_takes_back_what_the_garbage_collector_frees_meanwhile() -> None:
    """Nets are cycles, so their buffers may be freed while their own thread is within the pool."""
    from caffe.engines.cuda import driver
    from caffe.engines.cuda.place import Pool

    pool = Pool(rounding=256)

    class Collecting(dict):
        def get(self, *arguments: object) -> object:
            gc.collect()
            return super().get(*arguments)

    class Owner:
        def __init__(self) -> None:
            self.itself, self.memory = self, pool.take(512)

        def __del__(self) -> None:
            pool.give(*self.memory)

    Owner()
    pool._free = Collecting()
    taken: list[int] = []

    def take() -> None:
        driver.device()
        taken.append(pool.take(512)[1])

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    thread.join(20)
    assert taken == [512], "the thread waits for itself"


def test_more_numbers_than_kernels_count_to_are_refused() -> None:
    """An upper layer's top may be that large where its bottom is not."""
    from caffe.engines.cuda import base, compiler

    with pytest.raises(EngineError, match=r"kernel math\.fill cannot work on 2147483647 numbers.*batch_size"):
        base.arithmetic().fill.elements(2**31 - 1, 0, 1.0)
    with pytest.raises(EngineError, match="cannot work on"):
        base.arithmetic().fill.elements(compiler.MOST_ELEMENTS, 0, 1.0)


def test_pool_keeps_no_more_than_its_limit() -> None:
    from caffe.engines.cuda.place import Pool

    pool = Pool(rounding=256, limit=1000)
    pool.give(*pool.take(512))
    pool.give(*pool.take(600))
    assert pool.kept == 512


def test_memory_is_freed_with_its_owner() -> None:
    from caffe.engines.cuda import place

    driver = support.emulated()
    driver.emulated_memory_used.restype = place.ctypes.c_size_t
    before = driver.emulated_memory_used()
    mem = SyncedMem(1 << 16)
    place.write(mem)
    assert driver.emulated_memory_used() == before + (1 << 18)
    del mem
    gc.collect()
    assert driver.emulated_memory_used() == before


def test_out_of_memory_names_size_and_cure() -> None:
    from caffe.engines.cuda import place

    driver = support.emulated()
    driver.emulated_set_memory(place.ctypes.c_size_t(1 << 20))
    try:
        with pytest.raises(
            EngineError, match=r"out of memory on GPU 0 .*2 MiB more were needed.* smaller batch_size"
        ):
            place.write(SyncedMem(1 << 19))
    finally:
        driver.emulated_set_memory(place.ctypes.c_size_t(1 << 33))


def test_large_arrays_are_pinned_when_copied_again_and_freed_with_them() -> None:
    from caffe.engines.cuda import place

    mem = SyncedMem(place.PINNED)
    for value in range(3):
        mem.write()[...] = value
        place.read(mem)
    assert [pin.registered for pin in place.PLACE._pins.values()].count(True) == 1
    assert mem.read()[0] == 2
    del mem
    gc.collect()
    assert True not in [pin.registered for pin in place.PLACE._pins.values()]


def test_a_kernel_that_reads_too_far_is_our_error() -> None:
    from caffe.engines.cuda import base, place

    support.emulated()
    mem = SyncedMem(100)
    address = place.write(mem)
    with pytest.raises(EngineError, match=r"GPU: kernel math.fill failed: .*compute-sanitizer"):
        base.arithmetic().fill.elements(101, address, 1.0)


def test_memory_that_nobody_wrote_is_nan() -> None:
    from caffe.engines.cuda import place

    support.emulated()
    mem = SyncedMem(3)
    place.write(mem)
    assert np.isnan(mem.read()[:3]).all()
