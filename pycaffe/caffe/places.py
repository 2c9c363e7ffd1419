"""Places: memory that is not the host's, and memory that has been given up, for others to take."""

from __future__ import annotations

import contextlib
import mmap
from typing import Any, Protocol, runtime_checkable

import numpy as np

_ALIGN = 64
# Bytes from which on memory is asked of the system itself, and the size of its large pages: fewer of those
# must be looked up, and GoogLeNet's inference takes 7 % less time.
_LARGE, _HUGE = 1 << 20, 1 << 21


class Place(Protocol):
    """Memory that is not the host's. It knows nothing of layers; float32 only.

    A layout is hashable and tells the place how a logical C-order array is laid out there. Buffers are
    opaque. `host` below is a flat, C-order float32 array of exactly the layout's logical size.
    """

    name: str

    def allocate(self, layout: Any) -> Any:
        """A buffer able to hold the layout; padding, if any, is in the state that kernels expect."""
        ...

    def from_host(self, host: np.ndarray, layout: Any, buffer: Any) -> None: ...

    def to_host(self, buffer: Any, layout: Any, host: np.ndarray) -> None: ...

    def convert(self, source: Any, source_layout: Any, target: Any, target_layout: Any) -> bool:
        """Reorder within the place; False when these two layouts can only meet on the host."""
        ...


@runtime_checkable
class RoomyPlace(Place, Protocol):
    """A place whose buffers serve any layout that is not larger."""

    def size(self, layout: Any) -> int:
        """Bytes that a buffer of this layout needs."""
        ...

    def capacity(self, buffer: Any) -> int:
        """Bytes that a buffer has."""
        ...


class Pool:
    """Memory that arrays have given up, for others of the same pool: the host's, and that of roomy places.

    exact: buffers are taken by those who need just as many bytes, so that nothing lies behind an array."""

    # A host's array so many times as large as needed is kept for something larger.
    _WASTE = 4

    def __init__(self, exact: bool = False) -> None:
        self._exact = exact
        self._buffers: list[tuple[Place, int, Any]] = []
        self._host: list[np.ndarray] = []

    def give(self, place: Place, buffer: Any) -> None:
        if isinstance(place, RoomyPlace):
            self._buffers.append((place, place.capacity(buffer), buffer))

    def take(self, place: Place, layout: Any) -> Any:
        """The smallest buffer that fits, or None. Then a new one has to be made, in place of which the
        largest that does not fit is freed: who needs less can take the new one."""
        if not isinstance(place, RoomyPlace):
            return None
        needed = place.size(layout)
        sizes = [(size, i) for i, (where, size, _) in enumerate(self._buffers) if where is place]
        fits = [(size, i) for size, i in sizes if size == needed or (size > needed and not self._exact)]
        if fits:
            return self._buffers.pop(min(fits)[1])[2]
        if sizes and not self._exact:
            del self._buffers[max(sizes)[1]]
        return None

    def give_host(self, memory: np.ndarray) -> None:
        self._host.append(memory)

    def take_host(self, size: int, dtype: np.dtype) -> np.ndarray | None:
        fits = [
            (memory.size, i)
            for i, memory in enumerate(self._host)
            if memory.dtype == dtype and size <= memory.size <= self._WASTE * size
        ]
        return self._host.pop(min(fits)[1]) if fits else None


def aligned_zeros(size: int, dtype: np.dtype | type) -> np.ndarray:
    """Zeroed memory at a 64-byte boundary; large blocks cost nothing until they are touched."""
    dtype = np.dtype(dtype)
    needed = size * dtype.itemsize
    if needed >= _LARGE and hasattr(mmap, "MAP_PRIVATE"):
        # The C library keeps freed blocks of this size in its heap, once it has seen larger ones freed, and
        # clears them by writing.
        with contextlib.suppress(OSError):
            return _pages(needed).view(dtype)
    spare = _ALIGN // dtype.itemsize
    memory = np.zeros(size + spare, dtype)
    offset = (-memory.ctypes.data % _ALIGN) // dtype.itemsize
    return memory[offset : offset + size]


def _pages(nbytes: int) -> np.ndarray:
    """So many bytes in pages of their own, large ones where there are whole ones. OSError where the system
    has no more."""
    large = nbytes >= _HUGE
    pages = mmap.mmap(-1, nbytes + large * _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory = np.frombuffer(pages, np.uint8)
    first = -memory.ctypes.data % _HUGE if large else 0
    if large and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without them
            pages.madvise(mmap.MADV_HUGEPAGE, first, nbytes - nbytes % _HUGE)
    return memory[first : first + nbytes]
