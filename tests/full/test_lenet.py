"""LeNet on the whole of MNIST, as a person runs it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from caffe.resources import data_path

CAFFE = (sys.executable, "-m", "caffe_tools")


@pytest.fixture
def lenet(mnist: Path, tmp_path: Path) -> Path:
    """A working folder with models/lenet and its databases."""
    folder = tmp_path / "models" / "lenet"
    shutil.copytree(
        data_path("models", "lenet"), folder, ignore=shutil.ignore_patterns("*_lmdb", "lenet_iter*")
    )
    subprocess.run([*CAFFE, "data", "mnist", "models/lenet", "--from", str(mnist)], check=True)
    return folder


def accuracies(log: str) -> dict[int, float]:
    """Test accuracy after so many iterations."""
    found = re.findall(r"Iteration (\d+), Testing net.*?accuracy = (\S+)", log, re.DOTALL)
    return {int(iteration): float(accuracy) for iteration, accuracy in found}


def train(solver: Path) -> dict[int, float]:
    done = subprocess.run(
        [*CAFFE, "train", "-solver", str(solver)], check=True, stderr=subprocess.PIPE, text=True
    )
    return accuracies(done.stderr)


@pytest.mark.network
def test_300_iterations(lenet: Path) -> None:
    solver = lenet / "short.prototxt"
    text = (lenet / "solver.prototxt").read_text()
    solver.write_text(
        text.replace("max_iter: 10000", "max_iter: 300").replace("test_interval: 500", "test_interval: 300")
    )
    assert train(solver)[300] > 0.95


@pytest.mark.full
def test_10000_iterations_reach_the_originals_accuracy(lenet: Path) -> None:
    solver = lenet / "solver.prototxt"
    solver.write_text(solver.read_text() + "random_seed: 1701\n")
    measured = train(solver)
    assert measured[0] < 0.2
    assert measured[1000] >= 0.975
    assert measured[10000] >= 0.990
    assert {p.name for p in lenet.glob("lenet_iter_*")} >= {
        f"lenet_iter_{n}.{kind}" for n in (5000, 10000) for kind in ("caffemodel", "solverstate")
    }
