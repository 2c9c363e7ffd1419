"""caffe log: a training's log as tables and as a picture."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest


@pytest.fixture
def logs(golden: Path) -> Path:
    return golden / "solvers" / "logs"


def test_parse(cli, logs, tmp_path):
    done = cli("log", "parse", logs / "train_basic.log", tmp_path, "--verbose")
    assert done.status == 0
    with open(tmp_path / "train_basic.log.train", newline="") as file:
        train = [*csv.DictReader(file)]
    assert [row["NumIters"] for row in train] == ["0.0", "5.0", "10.0", "15.0", "20.0"]
    assert train[0]["loss"] == "0.781335" and train[0]["LearningRate"] == "0.1"
    with open(tmp_path / "train_basic.log.test", newline="") as file:
        assert [row["accuracy"] for row in csv.DictReader(file)] == ["0.2", "0.466667", "0.533333"]
    assert "Wrote 5 rows" in done.out and "NumIters = 20" in done.out


def test_parse_into_the_working_folder_with_another_delimiter(cli, logs):
    assert cli("log", "parse", "-delimiter", ";", logs / "train_basic.log").status == 0
    assert Path("train_basic.log.train").read_text().startswith("NumIters;Seconds;LearningRate;loss\n")


def test_plot(cli, logs):
    pytest.importorskip("matplotlib")
    two = (logs / "train_basic.log", logs / "train_multistep.log")
    assert cli("log", "plot", *two, "-o", "curves.svg", "-y", "accuracy").status == 0
    text = Path("curves.svg").read_text()
    assert "train_multistep.log (test)" in text
    assert cli("log", "plot", *two, "-o", "curves.png", "-x", "Seconds").status == 0


@pytest.mark.parametrize(
    ("argv", "status", "words"),
    [
        (["parse", "absent.log"], 1, "cannot read absent.log"),
        (["parse", "net.prototxt"], 1, "holds no outputs of a training"),
        (["parse", "-delimiter", "tab", "net.prototxt"], 2, "one character"),
        (["plot", "x.log"], 2, "output"),
        (["plot", "-o", "x.png"], 2, "LOGS"),
        (["prase", "x"], 2, "did you mean 'parse'"),
    ],
)
def test_refusals(cli, tiny, argv, status, words):
    done = cli("log", *argv)
    assert done.status == status
    assert words in done.error


def test_an_output_that_is_not_there(cli, logs):
    done = cli("log", "plot", logs / "train_basic.log", "-o", "x.png", "-y", "acuracy")
    assert done.status == 2 and "the logs have no acuracy" in done.error
