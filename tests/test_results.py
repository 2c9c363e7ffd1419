"""docs/results: what is reported has its log, its curve, its seed and its command, and the command works."""

from __future__ import annotations

import gzip
import re
import runpy
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from caffe.log_file import read_log

TOP = Path(__file__).parents[1]
RESULTS = TOP / "docs" / "results"
PICTURES = {
    "mnist_siamese": ["mnist_siamese.png", "mnist_siamese_loss.png"],
    "mnist_autoencoder": ["mnist_autoencoder.png", "mnist_autoencoder_loss.png"],
    "finetuning": ["finetuning.png", "lenet.png"],
}
RECIPES = [
    "digits",
    "lenet",
    "fashion_mnist",
    "mnist_siamese",
    "mnist_autoencoder",
    "finetuning",
    "char_rnn",
    "logistic_regression",
]
# The others need data that is not here, and more time.
QUICK = ("digits", "logistic_regression")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(RESULTS / "reproduce.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)


def outputs(name: str) -> set[str]:
    return {f"{name}.log", *PICTURES.get(name, [f"{name}.png"])}


def write_idx(path: Path, array: np.ndarray) -> None:
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    with gzip.open(f"{path}.gz", "wb") as file:
        file.write(head + array.astype(np.uint8).tobytes())


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set in MNIST's format, with 60 items of each class to train on."""
    folder = tmp_path_factory.mktemp("small")
    rng = np.random.default_rng(0)
    for part, count in (("train", 600), ("t10k", 200)):
        labels = np.arange(count) % 10
        write_idx(
            folder / f"{part}-images-idx3-ubyte",
            rng.integers(0, 25, (count, 28, 28)) + 20 * labels[:, None, None],
        )
        write_idx(folder / f"{part}-labels-idx1-ubyte", labels)
    return folder


def test_without_a_name_the_recipes_are_listed() -> None:
    assert run().stdout.split() == RECIPES
    assert "no recipe lenett" in run("lenett").stderr
    assert "it needs --into" in run("digits", "--iterations", "2").stderr


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.full]) for name in RECIPES]
)
def test_a_recipe_runs(name: str, tmp_path: Path, small: Path) -> None:
    pytest.importorskip("matplotlib")
    data = ["--mnist", str(small), "--fashion-mnist", str(small)]
    done = run(name, "--iterations", "4", "--into", str(tmp_path / "into"), *data)
    assert done.returncode == 0, done.stderr
    # With fine-tuning comes the log of the net that it begins with.
    expected = outputs(name) | ({"lenet.log"} if name == "finetuning" else set())
    assert {path.name for path in (tmp_path / "into").iterdir()} == expected
    assert "$ caffe train -solver net/solver.prototxt" in done.stdout


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_reported_is_there(name: str) -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in [*RESULTS.glob("*.md"), TOP / "README.md"]}
    for file in outputs(name):
        assert (RESULTS / file).stat().st_size
        assert any(f"{file})" in text for text in pages.values()), file
    command = re.compile(rf"^    scripts/results {name}$", re.MULTILINE)
    assert any(command.search(text) for text in pages.values())
    if name != "finetuning":
        log = (RESULTS / f"{name}.log").read_text(encoding="utf-8")
        assert "random_seed: 1\n" in log and "Optimization Done." in log
        assert read_log(RESULTS / f"{name}.log").test[-1]["NumIters"] > 0


@pytest.mark.parametrize(
    ("name", "page"),
    [("lenet", "lenet.md"), ("fashion_mnist", "fashion_mnist.md"), ("digits", "../../README.md")],
)
def test_accuracies_are_those_of_the_log(name: str, page: str) -> None:
    last = read_log(RESULTS / f"{name}.log").test[-1]["accuracy"]
    assert f"{last:.4f}" in (RESULTS / page).read_text(encoding="utf-8") or f"{last:.6f}" in (
        RESULTS / page
    ).read_text(encoding="utf-8")
    assert last >= {"lenet": 0.99, "fashion_mnist": 0.9, "digits": 0.97}[name]


def test_curves_are_drawn_from_a_log(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw = runpy.run_path(str(RESULTS / "curves.py"))["draw"]
    draw(str(RESULTS / "mnist_autoencoder.log"), str(tmp_path / "a.png"))  # two test nets, no accuracy
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
