"""Which memory of a net is free when: values of blobs that nobody will read again, and gradients in training.

Blobs are followed by their memory, since aliases (splits, layers in place) share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .errors import NetError
from .kernels import Fused
from .places import Pool
from .synced_mem import SyncedMem

# Values of fewer bytes are not worth asking for in training: without them the loss, which runs alone, leaves
# the other layers to be repeated as one.
SMALL = 1 << 18

# What is given up after each position of a pass.
Ends = list[list[tuple[SyncedMem, Callable[[], None]]]]


class _Lost:
    """Raised for whoever reads what was given up."""

    def __init__(self, message: str):
        self._message = message

    def __call__(self) -> None:
        raise NetError(self._message)


def is_written_by_a_user(layer: Any) -> bool:
    """Then it takes `.data` and `.diff`, arrays that hold what was there before, also to write into them."""
    return not type(layer).__module__.startswith("caffe.layer_types")


def read_in_backward(steps: Sequence[Any], needed: Sequence[bool]) -> set[SyncedMem]:
    """Values that a backward pass reads. needed: of each step, whether it runs backward."""
    return {
        blob.data_mem
        for step, wanted in zip(steps, needed, strict=True)
        if wanted
        for blob in step.kernel.backward_reads(step.bottom, step.top)
    }


def data_ends(
    runners: Sequence[Any], names: dict[int, str], keep: Iterable[SyncedMem], pool: Pool, smallest: int = 0
) -> Ends:
    """For a forward pass. names: of blobs, by id. keep: what must stay. smallest: bytes from which on an
    array is given up."""
    kept, last = set(keep), {}
    for position, runner in enumerate(runners):
        for blob in _blobs(runner):
            mem = blob.data_mem
            if mem not in kept and mem.size * mem.dtype.itemsize >= smallest:
                last[mem] = (position, names.get(id(blob), "?"))
    words = (
        "the memory of blob '{0}' is used by other layers: the net has keep_blobs=False. Set "
        "`net.keep_blobs = True`, or hold `net.blobs['{0}'].data` from before the forward pass"
    )
    return _ends(len(runners), last, words, pool)


def diff_ends(
    order: Sequence[tuple[Any, bool]], names: dict[int, str], keep: Iterable[SyncedMem], pool: Pool
) -> Ends:
    """For a backward pass in this order of (runner, does it run?).

    The gradient of a branch that leads to no loss is zero, and stays: nobody would write it again."""
    kept, last = set(keep), {}
    written = {
        blob.diff_mem
        for runner, runs in order
        if runs
        for step in _steps(runner)
        for blob, down in zip(step.bottom, step.propagate_down, strict=True)
        if down
    }
    for position, (runner, _) in enumerate(order):
        for blob in _blobs(runner):
            if blob.diff_mem in written and blob.diff_mem not in kept:
                last[blob.diff_mem] = (position, names.get(id(blob), "?"))
    for runner, _ in order:
        if isinstance(runner, Fused) and runner.lends_diffs:
            lender = runner.steps[-1].top[0].diff_mem
            borrowers = [b.diff_mem for b in runner.steps[0].bottom if b.diff_mem in last]
            if lender in last and borrowers:
                end = max(last[mem][0] for mem in borrowers)
                last[lender] = (max(end, last[lender][0]), last[lender][1])
    words = (
        "the gradient of blob '{0}' was given up to save memory, since the net's keep_diffs is False. Set it "
        "to True, or hold `net.blobs['{0}'].diff` from before the backward pass"
    )
    return _ends(len(order), last, words, pool)


def param_ends(order: Sequence[tuple[Any, bool]], pool: Pool) -> list[list[SyncedMem]]:
    """Parameters that each runner of a backward pass may have had laid out anew for itself."""
    ends = [
        list(dict.fromkeys(blob.data_mem for step in _steps(runner) for blob in step.layer.blobs))
        for runner, _ in order
    ]
    for mem in (mem for end in ends for mem in end):
        mem.pool = pool
    return ends


def _steps(runner: Any) -> Sequence[Any]:
    return runner.steps if isinstance(runner, Fused) else (runner,)


def _blobs(runner: Any) -> Iterable[Any]:
    for step in _steps(runner):
        yield from step.bottom
        yield from step.top


def _ends(count: int, last: dict[SyncedMem, tuple[int, str]], words: str, pool: Pool) -> Ends:
    ends: Ends = [[] for _ in range(count)]
    for mem, (position, name) in last.items():
        mem.pool = pool
        ends[position].append((mem, _Lost(words.format(name))))
    return ends
