"""How data-parallel ranks share what data layers read."""

from __future__ import annotations

from ..context import solver_count, solver_rank
from ..proto import caffe_pb2


def share(phase: int) -> tuple[int, int]:
    """(rank, number of ranks) for reading: when testing, every rank reads all of it."""
    if phase == caffe_pb2.TEST:
        return 0, 1
    return solver_rank(), solver_count()


def common_seed(seed: tuple[int, ...]) -> tuple[int, ...]:
    """A net's seed as rank 0 has it, for what all ranks must draw alike in order to share the data: solvers
    seed rank r with their random_seed + r. (Without a random_seed, the ranks' orders have nothing to do
    with each other.)"""
    return (seed[0] - solver_rank(), *seed[1:])
