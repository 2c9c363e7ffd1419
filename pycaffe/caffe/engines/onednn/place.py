"""Where oneDNN's arrays live: host memory in layouts of oneDNN's own.

A layout is an interned MemoryDesc. Plain layouts need no copy at all: kernels then use the host's array
itself (`Operand` decides). Reorders are counted, so that layouts that go back and forth show.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
import weakref
from collections import Counter
from typing import Any

import numpy as np

from ...blob import Blob
from ...synced_mem import SyncedMem
from .layouts import MemoryDesc, plain
from .primitives import DST, SRC, Buffer, Memory, Primitive, reorder

log = logging.getLogger("caffe.engine")


class Recorder(threading.local):
    """events: what is executed meanwhile in this thread, or None while nobody asks (repeated.py). A call of a
    primitive, or a conversion between layouts as (address written, function that does it again)."""

    events: list[Any] | None = None


RECORDER = Recorder()


class OneDNNPlace:
    """See places.Place. counts: copies between layouts so far, by kind; each is told in the log at
    debug level."""

    name = "onednn"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._reorders: dict[tuple[MemoryDesc, MemoryDesc], Primitive] = {}
        self._homes: weakref.WeakKeyDictionary[SyncedMem, MemoryDesc] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    # -- homes ------------------------------------------------------------------------------------

    def home(self, blob: Blob) -> MemoryDesc:
        """The layout in which whoever computes this blob leaves its data (and wants its diff)."""
        home = self._homes.get(blob.data_mem)
        return home if home is not None and home.shape == blob.shape else plain(blob.shape)

    def settle(self, blob: Blob, home: MemoryDesc) -> None:
        self._homes[blob.data_mem] = home

    def alias_home(self, blob: Blob) -> MemoryDesc | None:
        """The home of memory that this blob shares under another shape (Flatten, Reshape), or None."""
        home = self._homes.get(blob.data_mem)
        return (
            home
            if home is not None and home.shape != blob.shape and math.prod(home.shape) == blob.count
            else None
        )

    # -- copies -----------------------------------------------------------------------------------

    def allocate(self, layout: MemoryDesc) -> Buffer:
        return Buffer(max(layout.nbytes, 4))

    def size(self, layout: MemoryDesc) -> int:
        return max(layout.nbytes, 4)

    def capacity(self, buffer: Buffer) -> int:
        return buffer.bytes.size

    def from_host(self, host: np.ndarray, layout: MemoryDesc, buffer: Buffer) -> None:
        self._reorder("from_host", plain(layout.shape), host.ctypes.data, layout, buffer.address)

    def to_host(self, buffer: Buffer, layout: MemoryDesc, host: np.ndarray) -> None:
        self._reorder("to_host", layout, buffer.address, plain(layout.shape), host.ctypes.data)

    def convert(
        self, source: Buffer, source_layout: MemoryDesc, target: Buffer, target_layout: MemoryDesc
    ) -> bool:
        if source_layout.shape != target_layout.shape:
            return False
        self._reorder("reorder", source_layout, source.address, target_layout, target.address)
        return True

    def lay(self, host: np.ndarray, memory: Memory) -> None:
        """Copy a C-order array into a memory's layout."""
        self._reorder("from_host", plain(memory.desc.shape), host.ctypes.data, memory.desc, memory.address)

    def _reorder(
        self, what: str, source: MemoryDesc, source_address: int, target: MemoryDesc, target_address: int
    ) -> None:
        key = (source, target)
        self.counts[what] += 1
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s number %d: %r to %r", what, self.counts[what], source, target)
        with self._lock:
            primitive = self._reorders.get(key)
            if primitive is None:
                primitive = self._reorders[key] = reorder(Memory(source), Memory(target))
            primitive.memories[SRC].point(source_address)
            primitive.memories[DST].point(target_address)
            primitive()
        if RECORDER.events is not None:
            again = functools.partial(self._reorder, what, source, source_address, target, target_address)
            RECORDER.events.append((target_address, again))


PLACE = OneDNNPlace()


class Operand:
    """One argument of a primitive: a blob's data or diff in a layout, bound before each run.

    mode: "read", "write" or "modify", as in SyncedMem. on_host: the layout is how the host's array lies, seen
    with other axes or strides. The blob is asked for its memory each time, since it may come to share
    another's."""

    __slots__ = ("blob", "memory", "mode", "_which", "_access", "_on_host", "_last")

    def __init__(self, blob: Blob, which: str, desc: MemoryDesc, mode: str, on_host: bool = False):
        self.blob, self.memory = blob, Memory(desc)
        self._which = "data_mem" if which == "data" else "diff_mem"
        self._on_host = on_host or desc.plain
        self.mode = mode
        self._access = mode if self._on_host else f"{mode}_in"
        self._last: object = None

    @property
    def operand(self) -> Operand:
        """Itself: a Region has one."""
        return self

    @property
    def mem(self) -> SyncedMem:
        return getattr(self.blob, self._which)

    def bind(self) -> None:
        access = getattr(getattr(self.blob, self._which), self._access)
        if self._on_host:
            host = access()
            if host is not self._last:
                self._last = host
                self.memory.point(host.ctypes.data)
        else:
            buffer = access(PLACE, self.memory.desc)
            self.memory.point(buffer.address)
            if RECORDER.events is not None:
                # What will be repeated needs this very memory. Else it can be freed once it is given up.
                self._last = buffer
