"""SyncedMem: one array that may live in several places, and who holds views of it.

The original's HEAD_AT_CPU / HEAD_AT_GPU / SYNCED, generalised: a SyncedMem is a flat, logical array of
`size` elements. The host holds it in C order (what the blob's shape means); other places hold it in
layouts of their own, several at once if need be. `fresh` names the copies that are up to date. Reading
in a place converts at most once; writing there makes all others stale. Every alias of the array
(shared parameters, in-place tops, splits, test nets) refers to the one SyncedMem, so freshness is one fact.

Views. `export` hands an array to users. It is built over an exporter that SyncedMem knows by weak
reference, and every slice or reshape of the array keeps that exporter alive. While it lives, the host
memory is never freed, moved or reused; a net calls `host_written` before each pass and `refresh_view`
after it, so that values written through the view are read, and values computed elsewhere are seen.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .errors import ShapeError
from .execution import memory_limit, memory_text
from .places import Place, Pool, aligned_zeros


class _Exporter:
    """Owner of the memory behind arrays that users hold; lives exactly as long as any of them."""

    __slots__ = ("__array_interface__", "memory", "__weakref__")

    def __init__(self, memory: np.ndarray):
        self.memory = memory
        self.__array_interface__ = memory.__array_interface__


class _Loan:
    """Computes a deferred value that another array has: a copy."""

    __slots__ = ("key", "source", "_borrower")

    def __init__(self, borrower: SyncedMem, source: SyncedMem, place: Place, layout: Any):
        self.key, self.source, self._borrower = (place, layout), source, weakref.ref(borrower)

    def __call__(self) -> None:
        borrower = self._borrower()
        if borrower is not None:
            place, layout = self.key
            values = self.source.read_in(place, layout)
            place.convert(values, layout, borrower.write_in(place, layout), layout)


class SyncedMem:
    """size elements of dtype, allocated at first use and zero until written.

    Attributes for the fast path of blobs: `host_fresh` tells that `host` (flat, at least `size` long)
    may be read as it is. `version` rises whenever the values may have changed. `viewed` is None as long as no
    user has held a view.
    """

    __slots__ = (
        "size",
        "dtype",
        "host",
        "host_fresh",
        "_copies",
        "_fresh",
        "viewed",
        "_lock",
        "_pending",
        "_dependents",
        "pool",
        "version",
        "__weakref__",
    )

    def __init__(self, size: int = 0, dtype: np.dtype | type = np.float32):
        self.size = size
        self.dtype = np.dtype(dtype)
        self.host: np.ndarray | None = None
        self.host_fresh = False
        self._copies: dict[tuple[Place, Any], Any] = {}
        self._fresh: set[tuple[Place, Any]] = set()
        self.viewed: weakref.ref[_Exporter] | None = None
        self._lock = threading.RLock()
        self._pending: Callable[[], None] | None = None
        self._dependents: set[weakref.ref[SyncedMem]] = set()
        self.pool: Pool | None = None
        self.version = 0

    # -- the host ---------------------------------------------------------------------------------

    def read(self) -> np.ndarray:
        """The flat host array, up to date; its first `size` elements count. Not to be written."""
        if not self.host_fresh:
            self._bring_home()
        return self.host  # type: ignore[return-value]

    def modify(self) -> np.ndarray:
        """As read, to be read and written: every other copy becomes stale."""
        if self._dependents:
            self._before_change()
        if not self.host_fresh:
            self._bring_home()
        if self._fresh:
            self._fresh.clear()
        self.version += 1
        return self.host  # type: ignore[return-value]

    def write(self) -> np.ndarray:
        """The host array to be overwritten wholly: nothing is copied, every other copy becomes stale."""
        if self._dependents:
            self._before_change()
        if self.host is None:
            self._allocate_host()
        self.host_fresh = True
        self._pending = None
        if self._fresh:
            self._fresh.clear()
        self.version += 1
        return self.host  # type: ignore[return-value]

    def exchange(self, memory: np.ndarray) -> np.ndarray | None:
        """As write, with the new values in `memory` (flat, of this dtype, at least `size` long), which
        becomes the host's; returns the host's memory of before, for other use. None, and nothing is done,
        where that cannot be: while a view lives, or when memory does not fit."""
        if self.exporter() is not None or memory.dtype != self.dtype or memory.size < self.size:
            return None
        before = self.write()
        self.host = memory
        return before

    def clear(self) -> None:
        """Become zero. Nothing is written until somebody reads; while a view lives, its memory is."""
        if self.exporter() is not None:
            self.write()[: self.size] = 0
        else:
            self._forget()

    def _forget(self) -> None:
        if self._dependents:
            self._before_change()
        self.host_fresh, self._pending = False, None
        self._fresh.clear()
        self.version += 1

    @property
    def is_zero(self) -> bool:
        """Was it cleared, or never written? Whoever would add to it may then overwrite it."""
        return not self.host_fresh and not self._fresh and self._pending is None

    def defer(self, compute: Callable[[], None], sources: Iterable[SyncedMem] = ()) -> None:
        """The values are not there, but somebody who reads them gets them: compute() writes them then, or
        raises the reason why they are lost. Before one of the sources changes they are computed, too."""
        self._forget()
        self._pending = compute
        for source in sources:
            source._dependents.add(weakref.ref(self))

    def borrow(self, source: SyncedMem, place: Place, layout: Any) -> None:
        """Have the values that source has now: a copy of its own is made only when one of the two changes, or
        when the values are read elsewhere than in that place and layout."""
        self.defer(_Loan(self, source, place, layout), [source])

    def borrows_from(self, source: SyncedMem) -> bool:
        return isinstance(self._pending, _Loan) and self._pending.source is source

    def _before_change(self) -> None:
        dependents, self._dependents = self._dependents, set()
        for reference in dependents:
            mem = reference()
            if mem is not None and mem._pending is not None:
                with mem._lock:
                    mem._compute()

    def give_up(self, lost: Callable[[], None]) -> None:
        """Leave the memory to the pool; whoever reads the values gets what lost() raises. Nothing happens
        while a view lives."""
        if self.pool is None or self.exporter() is not None:
            return
        with self._lock:
            self._dependents.clear()
            self.defer(lost)
            for (place, _), buffer in self._copies.items():
                self.pool.give(place, buffer)
            self._copies.clear()
            if self.host is not None:
                self.pool.give_host(self.host)
                self.host = None

    def keep_one_copy(self) -> None:
        """Leave to the pool all copies in other places but the first that is up to date."""
        if self.pool is None or len(self._copies) < 2:
            return
        with self._lock:
            kept = next((key for key in self._copies if key in self._fresh), None)
            for key in [key for key in self._copies if key != kept]:
                self.pool.give(key[0], self._copies.pop(key))
                self._fresh.discard(key)
            # Whoever remembers where a copy lay must ask again.
            self.version += 1

    def release(self, sources: Iterable[SyncedMem]) -> None:
        """Sources may change from now on: what was deferred will not be asked for."""
        for source in sources:
            source._dependents.discard(weakref.ref(self))

    def _compute(self) -> None:
        compute, self._pending = self._pending, None
        try:
            compute()  # type: ignore[misc]
        except BaseException:
            self._forget()
            self._pending = compute
            raise

    def _allocate_host(self) -> None:
        needed, limit = self.size * self.dtype.itemsize, memory_limit()
        if needed > limit:
            # The system might promise it, and then end the process when the memory is used.
            raise ShapeError(
                f"{self.size} numbers need {memory_text(needed)} of memory; there are {memory_text(limit)}"
            )
        pooled = self.pool.take_host(self.size, self.dtype) if self.pool is not None else None
        if pooled is not None:
            self.host = pooled
            self.host[: self.size] = 0
        else:
            self.host = aligned_zeros(self.size, self.dtype)

    def _bring_home(self) -> None:
        with self._lock:
            if self._pending is not None:
                self._compute()
            if self.host_fresh:
                return
            if self.host is None:
                self._allocate_host()
            elif not self._fresh:
                self.host[: self.size] = 0  # never written since it was resized: zero, not leftovers
            for key in self._fresh:
                place, layout = key
                place.to_host(self._copies[key], layout, self.host[: self.size])  # type: ignore[index]
                break
            self.host_fresh = True

    def numbers(self) -> np.ndarray | None:
        """The values in whatever order they lie, padding included, without a copy, not to be written; None
        where they lie in a place that the host does not see."""
        if self.host_fresh:
            return self.host[: self.size]  # type: ignore[index]
        for key in self._fresh:
            floats = getattr(self._copies[key], "floats", None)
            if isinstance(floats, np.ndarray):
                return floats
        return None

    # -- other places -----------------------------------------------------------------------------

    def read_in(self, place: Place, layout: Any) -> Any:
        """The place's buffer in that layout, up to date, not to be written."""
        key = (place, layout)
        if key in self._fresh:
            return self._copies[key]
        with self._lock:
            if self._pending is not None:
                if isinstance(self._pending, _Loan) and self._pending.key == key:
                    return self._pending.source.read_in(place, layout)
                self._compute()
                if key in self._fresh:
                    return self._copies[key]
            buffer = self._buffer(key)
            if not self._convert_within(key, buffer):
                place.from_host(self.read()[: self.size], layout, buffer)
            self._fresh.add(key)
        return buffer

    def modify_in(self, place: Place, layout: Any) -> Any:
        """As read_in, to be read and written: the only fresh copy from now on."""
        buffer = self.read_in(place, layout)
        self._only_fresh((place, layout))
        return buffer

    def write_in(self, place: Place, layout: Any) -> Any:
        """The buffer to be overwritten wholly: the only fresh copy from now on."""
        key = (place, layout)
        buffer = self._copies.get(key)
        if buffer is None:
            with self._lock:
                buffer = self._buffer(key)
        self._only_fresh(key)
        return buffer

    def exchange_in(self, place: Place, layout: Any, buffer: Any = None) -> Any:
        """Give up the place's buffer in that layout, up to date, for another one (None: any), which the
        caller overwrites wholly: so a layer that works in place keeps what it read without a copy."""
        old = self.read_in(place, layout)
        key = (place, layout)
        self._copies[key] = self._new_buffer(key) if buffer is None else buffer
        self._only_fresh(key)
        return old

    def adopt(self, place: Place, layout: Any, buffer: Any) -> bool:
        """Let what is written there next be written into this buffer, if there is none yet. Will it be?"""
        return self._copies.setdefault((place, layout), buffer) is buffer

    def _only_fresh(self, key: tuple[Place, Any]) -> None:
        if self._dependents:
            self._before_change()
        self.host_fresh, self._pending = False, None
        self.version += 1
        if len(self._fresh) != 1 or key not in self._fresh:
            self._fresh = {key}

    def _buffer(self, key: tuple[Place, Any]) -> Any:
        buffer = self._copies.get(key)
        if buffer is None:
            if self.dtype != np.float32:
                raise TypeError(f"place {key[0].name!r} takes float32 only, not {self.dtype}")
            buffer = self._copies[key] = self._new_buffer(key)
        return buffer

    def _new_buffer(self, key: tuple[Place, Any]) -> Any:
        buffer = self.pool.take(*key) if self.pool is not None else None
        return key[0].allocate(key[1]) if buffer is None else buffer

    def _convert_within(self, key: tuple[Place, Any], buffer: Any) -> bool:
        place, layout = key
        for other in self._fresh:
            if other[0] is place and place.convert(self._copies[other], other[1], buffer, layout):
                return True
        return False

    def state(self) -> tuple[int, bool, int, int]:
        """(version, is the host's copy fresh, how many others are, how many arrays wait for this one): equal
        as long as nobody has touched it."""
        return self.version, self.host_fresh, len(self._fresh), len(self._dependents)

    def fresh_in(self, place: Place) -> list[Any]:
        """Layouts in which the place holds this array up to date."""
        return [layout for where, layout in self._fresh if where is place]

    def forget_host(self) -> bool:
        """Free the host's memory, if another place has the values and nobody views it. Was it freed?"""
        if self.host is None or not self._fresh or self.exporter() is not None:
            return False
        self.host, self.host_fresh = None, False
        return True

    # -- size -------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        return 0 if self.host is None else self.host.size

    def resize(self, size: int) -> None:
        """Change the logical size. Host memory is kept when it is large enough, with its contents
        when the host was fresh; otherwise the new contents are zeros. Memory that grows is allocated
        anew, and arrays handed out before stay valid but no longer belong to this blob."""
        if size == self.size:
            return
        if self._dependents:
            self._before_change()
        with self._lock:
            self._copies.clear()
            self._fresh.clear()
            self._pending = None
            self.version += 1
            if self.host is not None and size > self.host.size:
                self.host, self.host_fresh, self.viewed = None, False, None
            self.size = size

    # -- views that users hold --------------------------------------------------------------------

    def export(self) -> np.ndarray:
        """A flat array of `size` elements for users to read and write, now and later."""
        host = self.modify()
        exporter = self.exporter()
        if exporter is None or exporter.memory is not host:
            exporter = _Exporter(host)
            self.viewed = weakref.ref(exporter)
        return np.asarray(exporter)[: self.size]

    def exporter(self) -> _Exporter | None:
        """The living exporter, or None when no user holds a view."""
        return self.viewed() if self.viewed is not None else None

    def host_written(self) -> None:
        """A view may have been written: if one lives, the host holds the truth (before a pass)."""
        if self.viewed is not None:
            if self.viewed() is None:
                self.viewed = None
            elif self.host_fresh:
                self._fresh.clear()
                self.version += 1

    def refresh_view(self) -> None:
        """If a view lives, bring its memory up to date (after a pass or an update)."""
        if self.viewed is not None and not self.host_fresh:
            if self.viewed() is None:
                self.viewed = None
            else:
                self._bring_home()
