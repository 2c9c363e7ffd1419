"""Data-parallel training: several processes with a solver each, whose gradients are averaged.

Rank r of N reads records r, r + N, … of the data, so the effective batch is N times batch_size; all ranks
then make the same update. Rank 0 tests, displays and writes snapshots. Source: Caffe's NCCL and P2PSync.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from .callbacks import SolverCallback
from .net_wiring import LearnableParam
from .solver import Solver
from .synced_mem import SyncedMem

# Gradients are averaged in groups of about this size: large enough to be quick, small enough to begin early.
BUCKET_BYTES = 4 << 20


class Collective(Protocol):
    """What the ranks do together. All of them must call the same functions in the same order.

    broadcast: rank 0's numbers come to all. start_mean: begin to replace each array by its mean over the
    ranks; what the caller does next may go on meanwhile, but must not touch them. finish: what comes after it
    finds the means. abort: whoever waits for this rank gets an EngineError instead.
    """

    rank: int
    size: int

    def broadcast(self, mems: Sequence[SyncedMem]) -> None: ...

    def start_mean(self, mems: Sequence[SyncedMem]) -> None: ...

    def finish(self) -> None: ...

    def abort(self) -> None: ...


class DataParallel(SolverCallback):
    """Ties a solver to those of the other ranks: `solver.add_callback(DataParallel(solver, collective))`.

    Parameters of rank 0 go to all before the first iteration. Gradients are averaged in the order in which
    backward completes them, while it goes on.
    """

    def __init__(self, solver: Solver, collective: Collective, bucket_bytes: int = BUCKET_BYTES):
        self._net, self._collective = solver.net, collective
        self._bucket_bytes, self._started = bucket_bytes, False
        self._bucket: list[SyncedMem] = []
        self._size = 0

    def broadcast(self) -> None:
        """Rank 0's parameters come to all, BatchNorm's statistics included."""
        blobs = (blob for blobs in self._net.params.values() for blob in blobs)
        self._collective.broadcast(_distinct(blob.data_mem for blob in blobs))
        self._net.refresh_views()
        self._started = True

    def on_start(self) -> None:
        if not self._started:
            self.broadcast()

    def on_param_gradient_ready(self, param: LearnableParam) -> None:
        mem = param.blob.diff_mem
        self._bucket.append(mem)
        self._size += 4 * mem.size
        if self._size >= self._bucket_bytes:
            self._flush()

    def on_gradients_ready(self) -> None:
        self._flush()
        self._collective.finish()

    def on_exception(self, error: BaseException) -> None:
        self._collective.abort()

    def _flush(self) -> None:
        if self._bucket:
            self._collective.start_mean(self._bucket)
        self._bucket, self._size = [], 0


def _distinct(mems: Iterable[SyncedMem]) -> list[SyncedMem]:
    return [mem for mem in dict.fromkeys(mems) if mem.size]
