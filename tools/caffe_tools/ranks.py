"""caffe train -gpu 0,1: a process for each GPU, started anew (never forked), whose gradients are averaged.

This process is rank 0: it alone displays, tests and writes snapshots, and signals mean to it what they always
mean. When it has ended its work, or is gone, the others end; when one of them fails, it ends with an error.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import connection
from typing import Any

from caffe import context
from caffe.logs import init_log
from caffe.nccl import NCCL
from caffe.proto import caffe_pb2
from caffe.solver import Solver
from caffe.solver_registry import get_solver

log = logging.getLogger("caffe.tools")


@contextlib.contextmanager
def ranks(param: caffe_pb2.SolverParameter, snapshot: str, devices: Sequence[int]) -> Iterator[Solver]:
    """The solver of rank 0, with all other ranks running; they end with the block."""
    log.info("Use GPUs %s", ", ".join(map(str, devices)))
    uid, recipe = NCCL.new_uid(), param.SerializeToString()
    spawn = multiprocessing.get_context("spawn")
    processes, lines = [], []
    for rank in range(1, len(devices)):
        # What the other rank waits for is the end of this line, which comes also when this process is killed.
        there, here = spawn.Pipe(duplex=False)
        arguments = (recipe, snapshot, list(devices), rank, uid, there)
        process = spawn.Process(target=_run_rank, args=arguments, daemon=True, name=f"rank {rank}")
        process.start()
        there.close()
        processes.append(process)
        lines.append(here)
    over = threading.Event()
    threading.Thread(target=_watch, args=(processes, devices, over), daemon=True).start()
    try:
        yield _solver(param, snapshot, devices, 0, uid)
    finally:
        over.set()
        for line in lines:
            line.close()
        for process in processes:
            process.join(timeout=10)


def _solver(
    param: caffe_pb2.SolverParameter, snapshot: str, devices: Sequence[int], rank: int, uid: str
) -> Solver:
    context.set_solver_count(len(devices))
    context.set_solver_rank(rank)
    context.set_device(devices[rank])
    context.set_mode_gpu()
    solver = get_solver(param)
    if snapshot:
        log.info("Resuming from %s", snapshot)
        solver.restore(snapshot)
    solver.add_callback(NCCL(solver, uid))
    return solver


def _run_rank(recipe: bytes, snapshot: str, devices: list[int], rank: int, uid: str, line: Any) -> None:
    """The whole life of a process that is not rank 0."""
    for number in (signal.SIGINT, getattr(signal, "SIGHUP", signal.SIGINT)):
        signal.signal(number, signal.SIG_IGN)  # what rank 0 makes of it counts
    init_log(logging.WARNING)
    threading.Thread(target=_end_with_rank_0, args=(line,), daemon=True).start()
    solver = _solver(caffe_pb2.SolverParameter.FromString(recipe), snapshot, devices, rank, uid)
    solver.solve()


def _end_with_rank_0(line: Any) -> None:
    """Nothing here is worth keeping, and the main thread may be waiting on the GPU for ever."""
    connection.wait([line])
    os._exit(0)


def _watch(processes: Sequence[Any], devices: Sequence[int], over: threading.Event) -> None:
    """End this process when another rank fails: the main thread would wait for it on the GPU for ever."""
    waiting = {process.sentinel: process for process in processes}
    while waiting:
        for sentinel in connection.wait(list(waiting)):
            process = waiting.pop(sentinel)  # type: ignore[arg-type]
            process.join()
            if process.exitcode and not over.is_set():
                device = devices[1 + list(processes).index(process)]
                log.error(
                    "%s, on GPU %d, ended with status %d: its own message stands above. Training cannot go"
                    " on",
                    process.name,
                    device,
                    process.exitcode,
                )
                logging.shutdown()
                sys.stderr.flush()
                os._exit(1)
