"""Solvers: 25 iterations against the original's, and resuming from its snapshots in both formats."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import caffe
import golden_vectors as golden
from golden_vectors import Case, Comparison


@pytest.mark.parametrize("case", golden.cases("solvers"), ids=str)
def test_trajectory(case: Case, engine: str, tmp_path: Path) -> None:
    folder = _copy(case, tmp_path)
    solver = caffe.get_solver(f"{folder}/solver.prototxt")
    solver.net.copy_from("init.caffemodel")
    passes: list[float] = []
    last = len(solver.net.layers) - 1

    def after(layer: int) -> None:
        if layer == last:
            passes.append(float(solver.net.blobs["loss"].data))

    solver.net.after_forward(after)
    tolerance = case.meta["tol"]
    rates, losses = [], []
    with Comparison() as compare:
        for iteration in range(1, case.meta["iterations"] + 1):
            rates.append(solver.lr)
            passes.clear()
            solver.step(1)
            losses.append(np.mean(passes))  # over iter_size
            if f"param_0_after_{iteration}" in case:
                _compare_params(compare, solver, case, iteration)
        compare("loss", losses, case["loss"], **tolerance["loss"])
        compare("rate", rates, case["lr"], rtol=tolerance["lr"]["rtol"], atol=1e-12)


@pytest.mark.parametrize(
    ("prototxt", "state"),
    [("solver.prototxt", "bin_iter_10.solverstate"), ("solver_h5.prototxt", "h5_iter_10.solverstate.h5")],
    ids=["binary", "hdf5"],
)
@pytest.mark.parametrize("case", golden.cases("solvers"), ids=str)
def test_resume(case: Case, prototxt: str, state: str, engine: str, tmp_path: Path) -> None:
    folder = _copy(case, tmp_path)
    solver = caffe.get_solver(f"{folder}/{prototxt}")
    solver.restore(f"{folder}/{state}")
    assert solver.iter == 10
    solver.step(case.meta["iterations"] - 10)
    with Comparison() as compare:
        _compare_params(compare, solver, case, case.meta["iterations"])


def _copy(case: Case, where: Path) -> str:
    """The working folder of the recording, with this case alone. Tests run in `where`."""
    for path in case.folder.parent.iterdir():
        if path.is_file():
            shutil.copy(path, where)
    for name in ("data", case.folder.name):
        shutil.copytree(case.folder.parent / name, where / name)
    return case.folder.name


def _compare_params(compare: Comparison, solver: caffe.SGDSolver, case: Case, iteration: int) -> None:
    for index, blob in enumerate(golden.param_blobs(solver.net)):
        key = f"param_{index}_after_{iteration}"
        compare(key, blob.data, case[key], **case.meta["tol"]["params"])
