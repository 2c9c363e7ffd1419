"""A snapshot of a net with 240 MB of parameters, and restoring it, with SGD (480 MB on the disk).

With and without fsync: what it waits for then is the disk alone. The baseline writes the same bytes from
memory into one file. Good: within twice the baseline, and below 1 s where the disk is not the limit.

    scripts/bench snapshot [folder]             default: a temporary folder
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from google.protobuf import text_format

import caffe
import harness
from caffe.proto import caffe_pb2
from solver_update import NET, SIZE

BASELINE = "write of 480 MB"


def make_solver(folder: Path, format: str) -> caffe.SGDSolver:
    param = text_format.Parse(
        f'base_lr: 0.01 lr_policy: "fixed" snapshot_prefix: "{folder}/{format}" snapshot_format: {format}',
        caffe_pb2.SolverParameter(),
    )
    text_format.Parse(NET.format(n=SIZE), param.net_param)
    solver = caffe.get_solver(param)
    for blob in (*(p.blob for p in solver.net.learnable), *solver.history):
        blob.overwrite_cpu_data()[...] = np.random.default_rng(0).standard_normal(SIZE, dtype=np.float32)
    return solver


def make_write(folder: Path, format: str, sync: bool) -> Callable[[], object]:
    solver = make_solver(folder, format)
    fsync = os.fsync

    def run() -> None:
        os.fsync = fsync if sync else lambda descriptor: None
        try:
            solver.snapshot()
        finally:
            os.fsync = fsync

    return run


def make_restore(folder: Path, format: str) -> Callable[[], object]:
    solver = make_solver(folder, format)
    state = solver.snapshot()
    return lambda: solver.restore(state)


def make_baseline(folder: Path) -> Callable[[], object]:
    data = np.ones(4 * SIZE, np.float32)

    def run() -> None:
        with open(folder / "baseline", "wb") as file:
            file.write(data.data)

    return run


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        folder = Path(name)
        candidates: dict[str, Callable[[], Callable[[], object]]] = {BASELINE: lambda: make_baseline(folder)}
        for format in ("BINARYPROTO", "HDF5"):
            candidates[f"{format}, without fsync"] = lambda f=format: make_write(folder, f, False)
            candidates[f"{format}, with fsync"] = lambda f=format: make_write(folder, f, True)
            candidates[f"{format}, restore"] = lambda f=format: make_restore(folder, f)
        print(harness.machine())
        results = harness.compare(candidates, rounds=5, warm_up=1)
        print(harness.report("Snapshot of 60 million parameters", results, baseline=BASELINE))


if __name__ == "__main__":
    main()
