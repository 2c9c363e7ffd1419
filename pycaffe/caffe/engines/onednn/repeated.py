"""A run of steps that did nothing but call primitives is repeated without asking each blob again.

Where a pass of little work comes after another, half of its time would go into finding out that nothing
has changed. So the first pass notes what it executes. As long as the blobs' shapes, memory and states are
what that pass left, the next one executes the same, and only looks again at what comes from outside: inputs
and parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import End, Fused, repeatable
from ...synced_mem import SyncedMem
from .groups import Group
from .place import RECORDER

# So many passes in a row that could not be repeated end the attempts.
_ATTEMPTS = 8


class _Mark:
    """The state in which a pass has left an array that only the run itself writes."""

    __slots__ = ("mem", "version", "host_fresh", "copies", "dependents")

    def __init__(self, mem: SyncedMem):
        self.mem = mem
        self.version, self.host_fresh, self.copies, self.dependents = mem.state()

    def holds(self) -> bool:
        return self.mem.state() == (self.version, self.host_fresh, self.copies, self.dependents)

    def written(self) -> None:
        """Others may have noted the version: tell them that the values have changed."""
        self.mem.version += 1
        self.version = self.mem.version


class _Outside:
    """An argument that comes from outside: bound anew when its blob has changed."""

    __slots__ = ("bind", "_operand", "_mem", "_version")

    def __init__(self, argument: Any):
        self.bind, self._operand = argument.bind, argument.operand
        self._mem = self._operand.mem
        self._version = self._mem.version

    def refresh(self) -> None:
        mem = self._operand.mem
        if mem is not self._mem or mem.version != self._version:
            self.bind()
            self._mem, self._version = mem, mem.version


class Repeated(Fused):
    """runners: neighbours of a plan, steps and groups. ends: what each gives up afterwards (net_memory).
    kept: arrays that are read after each pass, so that they are written in the ordinary way."""

    def __init__(
        self,
        runners: Sequence[Any],
        ends: Sequence[End],
        kept: Set[SyncedMem],
    ):
        steps = [s for r in runners for s in (r.steps if isinstance(r, Fused) else (r,))]
        super().__init__(steps)
        self._runners, self._ends = list(runners), list(ends)
        self._groups = [r for r in runners if isinstance(r, Group)]
        blobs = dict.fromkeys(b for s in steps for b in (*s.bottom, *s.top))
        self._blobs: list[Blob] = list(blobs)
        self._watched: set[SyncedMem] = set(kept)
        self._pooled = {mem for end in ends for mem, _ in end}
        self._left = _ATTEMPTS
        self._valid = False
        self._known: list[tuple[Blob, tuple[int, ...], SyncedMem]] = []
        self._params: list[tuple[Blob, tuple[int, ...]]] = []
        made = {b for s in steps for b in s.top}
        self._given = [b for b in self._blobs if b not in made]
        self._inlets: list[tuple[Blob, tuple[int, ...], SyncedMem]] = []
        self._folded: list[tuple[Blob, SyncedMem, int]] = []
        self._lazy: list[tuple[Blob, SyncedMem]] = []
        self._marks: list[_Mark] = []
        self._outside: list[_Outside] = []
        self._actions: list[Callable[[], None]] = []
        self._again: list[Callable[[], None]] = []
        self._recorded = False

    def begin(self) -> None:
        self._valid = self._recorded and self._holds()
        if not self._valid:
            for group in self._groups:
                group.begin()

    def _holds(self) -> bool:
        for blob, shape, mem in self._known:
            if blob.shape is not shape or blob.data_mem is not mem:
                return False
        for blob, shape in self._params:
            if blob.shape is not shape:
                return False
        for blob, mem, version in self._folded:
            if blob.data_mem is not mem or mem.version != version:
                return False
        for blob, mem in self._lazy:
            if blob.data_mem is not mem or mem.exporter() is not None:
                return False
        changed = [mark.mem for mark in self._marks if not mark.holds()]
        self._watched.update(changed)
        return not changed

    def forget(self) -> None:
        """The steps were run in another way."""
        self._recorded = False

    def forward(self, run: ExecutionContext) -> float:
        if self._valid and any(
            b.shape is not shape or b.data_mem is not mem for b, shape, mem in self._inlets
        ):
            self._valid = False  # a layer before these has given its top another shape in this very pass
            for group in self._groups:
                group.begin()
        if self._valid:
            self._repeat()
        elif self._left:
            self._record(run)
        else:
            self._run(run)
        return 0.0

    def _run(self, run: ExecutionContext) -> None:
        for runner, ends in zip(self._runners, self._ends, strict=True):
            self.layer = runner.layer
            runner.forward(run)
            for mem, lost in ends:
                mem.give_up(lost)

    def _repeat(self) -> None:
        for argument in self._outside:
            argument.refresh()
        for action in self._actions:
            action()
        for mark in self._marks:
            mark.written()
        for again in self._again:
            again()
        self._left = _ATTEMPTS

    def _record(self, run: ExecutionContext) -> None:
        self._left -= 1
        RECORDER.events = events = []
        try:
            self._run(run)
        finally:
            RECORDER.events = None
        self._recorded = all(
            r.only_called if isinstance(r, Group) else repeatable(r)  # its kernel may be another since then
            for r in self._runners
        )
        if self._recorded:
            self._note(events)

    def _note(self, events: Sequence[Any]) -> None:
        """What has to be done to repeat a pass in which these events happened."""
        arguments = [a for event in events if not isinstance(event, tuple) for a in event.arguments]
        first: dict[SyncedMem, str] = {}
        written: set[SyncedMem] = set()
        for argument in arguments:
            operand = argument.operand
            first.setdefault(operand.mem, operand.mode)
            if operand.mode != "read":
                written.add(operand.mem)
        own = {
            mem
            for mem in written
            if first[mem] == "write" and mem not in self._watched and mem.exporter() is None
        }
        if self._pooled & written - own:
            self._recorded = False
            return
        addresses = {a.operand.memory.address for a in arguments if a.operand.mem in own}
        outside: dict[int, _Outside] = {}
        self._actions = []
        for event in events:
            if isinstance(event, tuple):
                target, convert = event
                if target in addresses:
                    self._actions.append(convert)
                continue
            for argument in event.arguments:
                mem = argument.operand.mem
                if mem not in written:
                    outside.setdefault(id(argument), _Outside(argument))
                elif mem not in own:
                    self._actions.append(argument.bind)
            self._actions.append(event.primitive)
        self._outside = list(outside.values())
        self._known = [(b, b.shape, b.data_mem) for b in self._blobs]
        self._params = [(b, b.shape) for s in self.steps for b in s.layer.blobs]
        self._inlets = [(b, b.shape, b.data_mem) for b in self._given]
        swallowed = [g.swallowed.data_mem for g in self._groups if g.swallowed is not None]
        self._marks = [_Mark(mem) for mem in (*own, *swallowed)]
        folded = dict.fromkeys(b for group in self._groups for b in group.folded_parameters())
        self._folded = [(b, b.data_mem, b.data_mem.version) for b in folded]
        lazy = dict.fromkeys(b for group in self._groups for b in group.lazy_sources())
        self._lazy = [(b, b.data_mem) for b in lazy]
        self._again = [group.again for group in self._groups]
