"""Process-wide settings that nets read: mode, device, seed, and the rank among solvers.

Mode is a process default with an override per thread: what the main thread sets is the default, and
a new thread starts with it; a thread that sets its own mode keeps that to itself. (In the original
a new thread silently ran on the CPU.)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CPU, GPU = "CPU", "GPU"
MAX_SEED = 2**63 - 1

_default_mode = CPU
_default_device = 0
_local = threading.local()


def set_mode_cpu() -> None:
    """Nets built from now on (in this thread; everywhere when called in the main thread) run on the CPU."""
    _set_mode(CPU)


def set_mode_gpu() -> None:
    """Nets built from now on run on the GPU. Whether there is one is found out by the first net."""
    _set_mode(GPU)


def _set_mode(mode: str) -> None:
    global _default_mode
    if threading.current_thread() is threading.main_thread():
        _default_mode = mode
    else:
        _local.mode = mode


def mode() -> str:
    """CPU or GPU, as it holds in this thread."""
    return getattr(_local, "mode", _default_mode)


def set_device(device: int) -> None:
    """Choose the GPU by its ordinal; takes effect for nets built afterwards."""
    global _default_device
    if int(device) < 0:
        raise ValueError(f"set_device: the device ordinal must be 0 or more, not {device}")
    if threading.current_thread() is threading.main_thread():
        _default_device = int(device)
    else:
        _local.device = int(device)


def device() -> int:
    return getattr(_local, "device", _default_device)


def engine() -> str:
    """The one engine that nets shall be built for, `reference` for NumPy alone; "" leaves the choice to the
    mode. It is CAFFE_ENGINE in the environment, unless `using` says another in this thread."""
    return getattr(_local, "engine", None) or os.environ.get("CAFFE_ENGINE", "")


@contextmanager
def using(*, mode: str | None = None, device: int | None = None, engine: str | None = None) -> Iterator[None]:
    """Settings for the nets that this thread builds within; None leaves one as it is. Other threads do not
    notice."""
    given: dict[str, Any] = {"mode": mode, "device": device, "engine": engine}
    given = {name: value for name, value in given.items() if value is not None}
    before = {name: vars(_local)[name] for name in given if name in vars(_local)}
    vars(_local).update(given)
    try:
        yield
    finally:
        for name in given:
            vars(_local).pop(name, None)
        vars(_local).update(before)


class _Seeds:
    """One seed for the process, and how many nets have drawn a stream of their own from it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seed: int | None = None
        self.drawn = 0


_seeds = _Seeds()


def set_random_seed(seed: int) -> None:
    """Every random number of nets built from now on follows from this seed (0 ≤ seed < 2**63)."""
    if not 0 <= int(seed) <= MAX_SEED:
        raise ValueError(f"set_random_seed: the seed must lie in [0, 2**63), not {seed}")
    with _seeds.lock:
        _seeds.seed, _seeds.drawn = int(seed), 0


def next_net_seed() -> tuple[int, int]:
    """(seed, ordinal) for one more net: two nets built after one seeding draw different numbers,
    and a program that seeds and builds the same nets again draws the same ones."""
    with _seeds.lock:
        if _seeds.seed is None:
            _seeds.seed = int.from_bytes(os.urandom(8), "little") & MAX_SEED
        _seeds.drawn += 1
        return _seeds.seed, _seeds.drawn - 1


_python_layers = True


def allow_python_layers(allowed: bool) -> None:
    """May nets of this process make Python layers, which run the code of the module that they name? For
    files of unknown origin; one net alone refuses them with Net(..., allow_python=False)."""
    global _python_layers
    _python_layers = allowed


def python_layers_allowed() -> bool:
    return _python_layers


_rank, _ranks = 0, 1


def set_solver_rank(rank: int) -> None:
    """This process's place among data-parallel ranks; rank 0 writes snapshots and logs."""
    global _rank
    _rank = int(rank)


def set_solver_count(count: int) -> None:
    """Number of data-parallel ranks: data layers read every count-th record."""
    global _ranks
    if count < 1:
        raise ValueError(f"set_solver_count: at least one solver is needed, not {count}")
    _ranks = int(count)


def set_multiprocess(several: bool) -> None:
    """Accepted, and without effect: ranks are processes of their own here, whether it is said or not."""


def solver_rank() -> int:
    return _rank


def solver_count() -> int:
    return _ranks


def root_solver() -> bool:
    return _rank == 0
