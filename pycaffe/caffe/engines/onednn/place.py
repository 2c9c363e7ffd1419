"""Where oneDNN's arrays live: host memory in layouts of oneDNN's own.

A layout is an interned MemoryDesc. Plain layouts need no copy at all: kernels then use the host's array
itself (`Operand` decides). Reorders are counted, so that layouts that go back and forth show.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from ...synced_mem import SyncedMem
from .primitives import Buffer, Memory, MemoryDesc, Primitive, plain, reorder


class OneDNNPlace:
    """See synced_mem.Place."""

    name = "onednn"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._reorders: dict[tuple[MemoryDesc, MemoryDesc], Primitive] = {}

    def allocate(self, layout: MemoryDesc) -> Buffer:
        return Buffer(max(layout.nbytes, 4))

    def from_host(self, host: np.ndarray, layout: MemoryDesc, buffer: Buffer) -> None:
        self.counts["from_host"] += 1
        self._reorder(plain(layout.shape), host.ctypes.data, layout, buffer.address)

    def to_host(self, buffer: Buffer, layout: MemoryDesc, host: np.ndarray) -> None:
        self.counts["to_host"] += 1
        self._reorder(layout, buffer.address, plain(layout.shape), host.ctypes.data)

    def convert(self, source: Buffer, source_layout: MemoryDesc, target: Buffer, target_layout: MemoryDesc) -> bool:
        if source_layout.shape != target_layout.shape:
            return False
        self.counts["reorder"] += 1
        self._reorder(source_layout, source.address, target_layout, target.address)
        return True

    def _reorder(self, source: MemoryDesc, source_address: int, target: MemoryDesc, target_address: int) -> None:
        key = (source, target)
        primitive = self._reorders.get(key)
        if primitive is None:
            primitive = self._reorders[key] = reorder(Memory(source), Memory(target))
        memories = list(primitive.memories.values())
        memories[0].point(source_address)
        memories[1].point(target_address)
        primitive()


PLACE = OneDNNPlace()


class Operand:
    """One argument of a primitive: a SyncedMem in a layout, bound to the primitive's memory before each run.

    mode: "read", "write" or "modify", as in SyncedMem.
    """

    __slots__ = ("mem", "memory", "_mode", "_plain", "_host", "_last")

    def __init__(self, mem: SyncedMem, desc: MemoryDesc, mode: str):
        self.mem, self.memory, self._mode = mem, Memory(desc), mode
        self._plain = desc.plain
        self._last: Any = None
        self._host = {"read": mem.read, "write": mem.write, "modify": mem.modify}[mode]

    def bind(self) -> None:
        """Make the values fresh in the layout and point the primitive at them."""
        if self._plain:
            host = self._host()
            if host is not self._last:
                self._last = host
                self.memory.point(host.ctypes.data)
            return
        mem, desc = self.mem, self.memory.desc
        if self._mode == "read":
            buffer = mem.read_in(PLACE, desc)
        elif self._mode == "write":
            buffer = mem.write_in(PLACE, desc)
        else:
            buffer = mem.modify_in(PLACE, desc)
        if buffer is not self._last:
            self._last = buffer
            self.memory.point(buffer.address)
