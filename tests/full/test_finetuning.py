"""The example of fine-tuning, on real digits and clothes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from caffe.resources import data_path

ROOT = Path(__file__).parents[2]
CAFFE = (sys.executable, "-m", "caffe_tools")
DEBIAN = Path("/usr/share/datasets/fashion-mnist")


@pytest.fixture(scope="session")
def clothes(request: pytest.FixtureRequest) -> Path:
    """The folder of Fashion-MNIST's files: where Debian's package has them, or from that package, unpacked
    in pytest's cache. Skips where there is neither."""
    if DEBIAN.is_dir():
        return DEBIAN
    folder = request.config.cache.mkdir("dataset-fashion-mnist")
    found = folder / DEBIAN.relative_to("/")
    if not found.is_dir():
        if shutil.which("apt-get") is None:
            pytest.skip(
                "Fashion-MNIST comes from Debian's package dataset-fashion-mnist, and there is no apt-get"
            )
        got = subprocess.run(
            ["apt-get", "download", "-qq", "dataset-fashion-mnist"],
            cwd=folder, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        if got.returncode:
            pytest.skip(f"apt-get cannot get dataset-fashion-mnist: {got.stderr.strip().splitlines()[-1:]}")
        (package,) = folder.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", package.name, "."], cwd=folder, check=True)
        package.unlink()
    return found


@pytest.mark.full
def test_fine_tuning_is_ahead_of_training_from_scratch(mnist: Path, clothes: Path, tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "examples" / "finetuning", "examples/finetuning", ignore=shutil.ignore_patterns("*_lmdb")
    )
    shutil.copytree(data_path("models", "lenet"), "models/lenet", ignore=shutil.ignore_patterns("*_lmdb"))
    solver = Path("models/lenet/solver.prototxt")
    solver.write_text(solver.read_text().replace("max_iter: 10000", "max_iter: 2000"))
    for command in (
        ["data", "mnist", "models/lenet", "--from", str(mnist)],
        ["train", "-solver", str(solver)],
        ["data", "fashion-mnist", "examples/finetuning", "--from", str(clothes)],
    ):
        subprocess.run([*CAFFE, *command], check=True)
    compare = [
        sys.executable,
        "examples/finetuning/compare.py",
        "models/lenet/lenet_iter_2000.caffemodel",
        "3",
    ]
    table = subprocess.run(compare, check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = re.findall(r"^\| (\d+) \| ([\d.]+) % .*? \| ([\d.]+) %", table, re.MULTILINE)
    measured = {int(budget): (float(scratch), float(tuned)) for budget, scratch, tuned in rows}
    # A single budget says little with three draws; the three short ones together say enough.
    gains = [tuned - scratch for scratch, tuned in (measured[budget] for budget in (25, 50, 100))]
    assert sum(gains) / len(gains) > 1, table
    assert min(measured[400]) > 75, table
