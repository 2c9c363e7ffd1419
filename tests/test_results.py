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


def test_figures_of_small_models_are_those_of_their_logs() -> None:
    page = (RESULTS / "small_models.md").read_text(encoding="utf-8")
    readmes = {
        name: (TOP / "models" / name / "readme.md").read_text(encoding="utf-8")
        for name in ("mnist_siamese", "mnist_autoencoder", "char_rnn", "logistic_regression")
    }
    siamese, autoencoder, char_rnn, regression = (read_log(RESULTS / f"{name}.log") for name in readmes)
    loss = f"{siamese.test[-1]['loss']:.4f}"
    assert f"falls to {loss} (" in page and f"loss of test pairs {loss};" in readmes["mnist_siamese"]
    (nearest,) = re.findall(r"for (\S+ %) of 5,000", page)
    assert f"for {nearest} |" in readmes["mnist_siamese"]
    # The second test net reads the test data.
    error = autoencoder.test[-1]["l2_error (#1)"]
    assert f"entropy falls to {autoencoder.test[-1]['cross_entropy_loss (#1)']:.1f} and" in page
    assert f"error of a digit to {error:.2f} (" in page
    (pixel,) = re.findall(r": (0\.\d+) for a pixel", page)  # of 5,000 digits
    assert float(pixel) == pytest.approx(2 * error / 28**2, abs=0.0006)
    assert f"square error {pixel} for a pixel" in readmes["mnist_autoencoder"]
    best = min(char_rnn.test, key=lambda row: row["loss"])
    last = char_rnn.test[-1]
    learned = re.findall(r"Iteration 600, loss = (\S+)", (RESULTS / "char_rnn.log").read_text())[-1]
    assert f"falls to {float(learned):.2f} on" in page
    assert f"best at the {best['NumIters']:.0f}th iteration ({best['loss']:.2f})" in page
    assert f"rises to {last['loss']:.2f}\n" in page and f"at {100 * last['accuracy']:.0f} % of" in page
    assert f"loss {float(learned):.2f} on" in readmes["char_rnn"]
    assert f"{best['loss']:.2f} at best" in readmes["char_rnn"]
    accuracy = 100 * regression.test[-1]["accuracy"]
    assert f"{accuracy:.2f} % of the 2,500" in page
    assert f"{accuracy:.1f} % (measured" in readmes["logistic_regression"]


def test_the_table_of_fine_tuning_is_of_its_log() -> None:
    ways: dict[str, list[list[str]]] = {}
    for line in (RESULTS / "finetuning.log").read_text(encoding="utf-8").splitlines():
        way, draw = line.partition(", ")[2].split(": ", 1)
        ways.setdefault(way, []).append(draw.split(", "))
    cells: dict[str, list[str]] = {}
    for draws in (ways["from scratch"], ways["fine-tuned"]):
        for column in zip(*draws, strict=True):
            iterations = column[0].partition(": ")[0]
            values = 100 * np.array([float(pair.partition(": ")[2]) for pair in column])
            cells.setdefault(iterations, []).append(f"{values.mean():.1f} % ± {values.std(ddof=1):.1f}")
    page = (RESULTS / "finetuning.md").read_text(encoding="utf-8")
    assert len(cells) == 5
    for iterations, (scratch, tuned) in cells.items():
        assert f"| {iterations} | {scratch} | {tuned} |" in page
    readme = (TOP / "examples" / "finetuning" / "readme.md").read_text(encoding="utf-8")
    assert f"| from scratch | {cells['100'][0]} |\n| fine-tuned | {cells['100'][1]} |" in readme


def test_curves_are_drawn_from_a_log(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw = runpy.run_path(str(RESULTS / "curves.py"))["draw"]
    draw(str(RESULTS / "mnist_autoencoder.log"), str(tmp_path / "a.png"))  # two test nets, no accuracy
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
