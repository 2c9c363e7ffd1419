"""Where the GPU's arrays live: device memory in C order, from a pool; and the copies to and from the host.

A layout is the number of elements. Copies and kernels run on one stream, so that memory which one kernel has
done with may be given to the next at once; but for batches that are sent ahead (Upload). Host arrays that are
copied again and again are pinned, which doubles the speed of a copy.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...blob import Blob
from ...errors import EngineError
from ...execution import memory_text
from ...synced_mem import SyncedMem
from . import driver

# Sizes are rounded up to this, so that blobs of about one size share memory.
ROUNDING = 512
# Host arrays below this are not worth pinning, which takes a system call.
PINNED = 1 << 20


class Pool:
    """Device memory that is kept for the next user of its size when freed.

    rounding: see ROUNDING. limit: bytes kept; what exceeds it goes back to the driver.
    """

    def __init__(self, rounding: int = ROUNDING, limit: int = 1 << 62):
        self.rounding, self.limit, self.kept = rounding, limit, 0
        self._free: dict[int, list[Any]] = {}
        # Of a kind that its own thread may take again: the garbage collector may free a buffer meanwhile.
        self._lock = threading.RLock()

    def take(self, nbytes: int) -> tuple[Any, int]:
        """(allocation, its size). Raises EngineError when the device has no more."""
        size = max(-(-nbytes // self.rounding), 1) * self.rounding
        with self._lock:
            waiting = self._free.get(size)
            if waiting:
                self.kept -= size
                return waiting.pop(), size
        device = driver.device()
        what = f"allocating {memory_text(size)}"
        try:
            return driver.perform(what, device.driver.mem_alloc, size), size
        except EngineError as error:
            if not isinstance(error.__cause__, device.driver.MemoryError):
                raise
            self.release()
        try:
            return driver.perform(what, device.driver.mem_alloc, size), size
        except EngineError as error:
            if not isinstance(error.__cause__, device.driver.MemoryError):
                raise
            free, total = device.memory()
            raise EngineError(
                f"out of memory on GPU {device.ordinal} ({device.name}): {memory_text(size)} more were "
                "needed, "
                f"{memory_text(free)} of {memory_text(total)} are free. Use a smaller batch_size with a "
                "larger iter_size, or end "
                "what else runs on this GPU (`nvidia-smi`)"
            ) from error

    def give(self, allocation: Any, size: int) -> None:
        """Take memory back. Its contents may still be read by what was launched before."""
        with self._lock:
            if self.kept + size <= self.limit:
                self.kept += size
                self._free.setdefault(size, []).append(allocation)

    def release(self) -> None:
        """Give what nobody uses back to the driver."""
        with self._lock:
            self._free.clear()
            self.kept = 0


POOL = Pool()


class Buffer:
    """Device memory. address: an integer, as kernels take it."""

    __slots__ = ("address", "nbytes", "_allocation", "_size")

    def __init__(self, nbytes: int):
        self.nbytes = nbytes
        self._allocation, self._size = POOL.take(nbytes)
        self.address = int(self._allocation)

    def __del__(self) -> None:
        allocation = getattr(self, "_allocation", None)
        if allocation is not None:
            POOL.give(allocation, self._size)


class CudaPlace:
    """See places.Place. counts: copies and bytes so far, "to_device", "to_host", "to_device_bytes" ..."""

    name = "cuda"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._pins: dict[int, _Pin] = {}

    def allocate(self, layout: int) -> Buffer:
        return Buffer(4 * layout)

    def size(self, layout: int) -> int:
        return 4 * layout

    def capacity(self, buffer: Buffer) -> int:
        return buffer.nbytes

    def from_host(self, host: np.ndarray, layout: int, buffer: Buffer) -> None:
        if layout == 0:
            return
        device = driver.device()
        self.sent(host)
        what = f"copying {memory_text(host.nbytes)} to the GPU"
        # Pageable or pinned, the call returns only when the host's array may be written again.
        driver.perform(what, device.driver.memcpy_htod, buffer.address, host)

    def to_host(self, buffer: Buffer, layout: int, host: np.ndarray) -> None:
        if layout == 0:
            return
        device = driver.device()
        self._count("to_host", host.nbytes)
        self._pin(host)
        device.synchronize()
        what = f"copying {memory_text(host.nbytes)} from the GPU"
        driver.perform(what, device.driver.memcpy_dtoh, host, buffer.address)

    def convert(self, source: Buffer, source_layout: int, target: Buffer, target_layout: int) -> bool:
        """Never called: an array has one size, and so one layout."""
        return False

    def sent(self, host: np.ndarray) -> None:
        """To be called before an array is copied to the device: counts it, and pins what comes again."""
        self._count("to_device", host.nbytes)
        self._pin(host)

    def _count(self, what: str, nbytes: int) -> None:
        self.counts[what] += 1
        self.counts[f"{what}_bytes"] += nbytes

    def _pin(self, host: np.ndarray) -> None:
        """Pin a large array when it is copied for the second time, until its memory is freed."""
        if host.nbytes < PINNED:
            return
        owner: Any = host
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        known = self._pins.get(id(owner))
        if known is None:
            weakref.finalize(owner, self._unpin, id(owner)).atexit = False
            self._pins[id(owner)] = _Pin(owner.ctypes.data, owner.nbytes)
        elif known.registered is None:
            known.register()

    def _unpin(self, key: int) -> None:
        self._pins.pop(key).unregister()


class _Pin:
    """A host array that may be page-locked. registered: None before the attempt, then whether it
    succeeded."""

    def __init__(self, address: int, nbytes: int):
        self.address, self.nbytes = ctypes.c_void_p(address), ctypes.c_size_t(nbytes)
        self.registered: bool | None = None

    def register(self) -> None:
        # Refused where too much is locked already: the copy is slower then, and as right.
        self.registered = driver.raw().cuMemHostRegister_v2(self.address, self.nbytes, 0) == 0

    def unregister(self) -> None:
        if self.registered and driver.usable():
            driver.device()
            driver.raw().cuMemHostUnregister(self.address)


PLACE = CudaPlace()


class Upload:
    """Arrays of the host on their way to the device, on a stream of their own, while kernels run.

    Until `give` the arrays must stay as they are. An upload may be dropped at any time.
    """

    def __init__(self, arrays: Sequence[np.ndarray]):
        device = driver.device()
        self._device, self._arrays, self._under_way = device, arrays, True
        self._buffers = [Buffer(array.nbytes) for array in arrays]
        self._done = driver.event()
        driver.order(device.uploads, device.stream, driver.event())  # which has used the memory until now
        for array, buffer in zip(arrays, self._buffers, strict=True):
            PLACE.sent(array)
            arguments = (buffer.address, array, device.uploads)
            what = f"copying {memory_text(array.nbytes)} to the GPU"
            driver.perform(what, device.driver.memcpy_htod_async, *arguments)
        driver.perform("an event", self._done.record, device.uploads)

    def give(self, mems: Sequence[SyncedMem]) -> None:
        """Make the arrays the values of mems, which have their sizes. Returns when the arrays may change."""
        what = "waiting for a copy to the GPU"
        driver.perform(what, self._device.stream.wait_for_event, self._done)
        driver.perform(what, self._done.synchronize)
        self._under_way = False
        for mem, buffer in zip(mems, self._buffers, strict=True):
            mem.write_in(PLACE, mem.size)
            mem.exchange_in(PLACE, mem.size, buffer)

    def __del__(self) -> None:
        # Neither the arrays' memory nor the buffers' may get other users before the copies are done.
        if getattr(self, "_under_way", False):
            self._device.drain()
        elif driver.usable():
            driver.device()  # PyCUDA frees an event only in a thread where the context is current


# -- what kernels ask for: addresses
# ------------------------------------------------------------------------------------


def read(mem: SyncedMem) -> int:
    """Address of the array, up to date, not to be written."""
    if mem.is_zero:
        return zero(mem)
    return mem.read_in(PLACE, mem.size).address


def write(mem: SyncedMem) -> int:
    """Address of the array, to be overwritten wholly."""
    return mem.write_in(PLACE, mem.size).address


def modify(mem: SyncedMem) -> int:
    """Address of the array, to be read and written."""
    if mem.is_zero:
        return zero(mem)
    return mem.modify_in(PLACE, mem.size).address


def zero(mem: SyncedMem) -> int:
    """Make the array zero on the device, without a copy."""
    buffer = mem.write_in(PLACE, mem.size)
    clear(buffer.address, mem.size)
    return buffer.address


def accumulate(blob: Blob) -> tuple[int, float]:
    """(address, factor of what stands there) of a parameter's diff, to which a gradient is to be added."""
    mem = blob.diff_mem
    if mem.is_zero:
        return write(mem), 0.0
    return modify(mem), 1.0


def clear(address: int, count: int) -> None:
    """count floats become 0."""
    if count:
        device = driver.device()
        driver.perform("a memset", device.driver.memset_d32_async, address, 0, count, device.stream)


def copy(source: int, target: int, count: int) -> None:
    """count floats from one place on the device to another."""
    if count and source != target:
        device = driver.device()
        arguments = (target, source, 4 * count, device.stream)
        driver.perform("a copy on the GPU", device.driver.memcpy_dtod_async, *arguments)
