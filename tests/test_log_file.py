"""Logs of the original, of ours and of interrupted trainings, as rows."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

import caffe
from caffe.errors import DataError
from caffe.log_file import read_log, write_csv

HEAD = "I1231 23:59:50.000000  4711 solver.cpp:60] "


def log_of(*messages: str, start: str = "1231 23:59:50") -> Path:
    """A log whose lines come ten seconds apart, over the end of a year."""
    path = Path("train.log")
    times = ["1231 23:59:50", "0101 00:00:00", "0101 00:00:10", "0101 00:00:20", "0101 00:00:30"]
    lines = ["Log file created at: 2016/12/31 23:59:50", "caffe train --solver=s.prototxt"]
    for k, message in enumerate(messages):
        lines.append(f"I{times[min(k, 4)]}.500000  4711 solver.cpp:60] {message}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_rows_as_parse_log_had_them() -> None:
    log = read_log(
        log_of(
            "Solving LeNet",
            "Iteration 0, Testing net (#0)",
            "    Test net output #0: accuracy = 0.1",
            "    Test net output #1: loss = 2.5 (* 1 = 2.5 loss)",
            "Iteration 0 (0 iter/s, 0.1s/100 iters), loss = 2.4",
            "    Train net output #0: loss = 2.4 (* 1 = 2.4 loss)",
            "Iteration 0, lr = 0.01",
            "Iteration 100, loss = 1.5",
            "    Train net output #0: loss = 1.25e-01 (* 1 = 0.125 loss)",
            "Iteration 100, lr = 1e-3",
        )
    )
    assert log.train == [
        {"NumIters": 0, "Seconds": 40, "LearningRate": 0.01, "loss": 2.4},
        {"NumIters": 100, "Seconds": 40, "LearningRate": 0.001, "loss": 0.125},
    ]
    # What is tested before the first rate is logged was tested at that rate.
    assert log.test == [{"NumIters": 0, "Seconds": 20, "LearningRate": 0.01, "accuracy": 0.1, "loss": 2.5}]


def test_what_is_not_a_number_and_what_is_unfinished_is_kept() -> None:
    log = read_log(
        log_of(
            "Solving",
            "Iteration 5, loss = nan",
            "    Train net output #0: loss = nan (* 1 = nan loss)",
            "Iteration 5, lr = 0.1",
            "Iteration 6, loss = -inf",
            "    Train net output #0: loss = -inf (* 1 = -inf loss)",
            "Iteration 6, Testing net (#0)",
            "    Test net output #0: accuracy = 0.5",
        )
    )
    assert [row["NumIters"] for row in log.train] == [5, 6]
    assert math.isnan(log.train[0]["loss"]) and log.train[1]["loss"] == -math.inf
    assert log.test == [{"NumIters": 6, "Seconds": 40, "LearningRate": 0.1, "accuracy": 0.5}]


def test_several_test_nets_and_outputs_of_several_values() -> None:
    log = read_log(
        log_of(
            "Iteration 0, Testing net (#0)",
            "    Test net output #0: accuracy = 0.1",
            "    Test net output #1: accuracy = 0.2",
            "Iteration 0, Testing net (#1)",
            "    Test net output #0: accuracy = 0.3",
            "    Test net output #1: accuracy = 0.4",
        )
    )
    (row,) = log.test
    assert {name: row[name] for name in row if "acc" in name} == {
        "accuracy": 0.1,
        "accuracy_1": 0.2,
        "accuracy (#1)": 0.3,
        "accuracy_1 (#1)": 0.4,
    }


def test_a_training_that_was_resumed_into_the_same_file() -> None:
    once = ["Iteration 10, loss = 1", "    Train net output #0: loss = 1"]
    log = read_log(log_of("Solving", *once, "Solving", *once))
    assert [row["NumIters"] for row in log.train] == [10, 10]
    assert [row["Seconds"] for row in log.train] == [20, 10]


def test_recorded_logs_of_the_original(golden: Path) -> None:
    log = read_log(golden / "solvers/logs/train_two_tests.log")
    assert [row["NumIters"] for row in log.test] == [0, 12, 24]
    assert log.test[1]["accuracy"] == 0.466667 and log.test[1]["loss (#1)"] == 1.73635
    basic = read_log(golden / "solvers/logs/train_basic.log")
    assert basic.train and all(not math.isnan(row["LearningRate"]) for row in basic.train)


def test_our_own_log_gives_what_the_solver_had(capfd: pytest.CaptureFixture[str]) -> None:
    Path("net.prototxt").write_text(
        'name: "n" layer { name: "d" type: "DummyData" top: "x" top: "t"'
        " dummy_data_param { shape { dim: 4 dim: 3 } shape { dim: 4 dim: 1 }"
        '  data_filler { type: "gaussian" } data_filler { type: "constant" } } }'
        'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y"'
        '  inner_product_param { num_output: 1 weight_filler { type: "xavier" } } }'
        'layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "t" top: "loss" }'
    )
    Path("solver.prototxt").write_text(
        'net: "net.prototxt" base_lr: 0.5 lr_policy: "step" gamma: 0.1 stepsize: 2 display: 1 max_iter: 4'
        " test_interval: 2 test_iter: 1 snapshot_after_train: false"
    )
    caffe.init_log()
    caffe.get_solver("solver.prototxt").solve()
    Path("ours.log").write_text(capfd.readouterr().err)
    log = read_log("ours.log")
    assert [row["NumIters"] for row in log.train] == [0, 1, 2, 3]
    assert [row["LearningRate"] for row in log.train] == pytest.approx([0.5, 0.5, 0.05, 0.05])
    assert [row["NumIters"] for row in log.test] == [0, 2, 4]
    assert all(row["loss"] > 0 for row in (*log.train, *log.test))


def test_csv(tmp_path: Path) -> None:
    rows = [{"NumIters": 0.0, "Seconds": 1.5, "LearningRate": 0.1}, {"NumIters": 5.0, "loss": math.nan}]
    write_csv(rows, tmp_path / "log.train", delimiter=";")
    with open(tmp_path / "log.train", newline="") as file:
        assert [*csv.reader(file, delimiter=";")] == [
            ["NumIters", "Seconds", "LearningRate", "loss"],
            ["0.0", "1.5", "0.1", ""],
            ["5.0", "", "", "nan"],
        ]
    with pytest.raises(DataError, match="cannot write"):
        write_csv(rows, tmp_path / "absent" / "x")


def test_files_without_a_training() -> None:
    Path("other.log").write_bytes(b"\xff\xfe hello\nI9999 77:00:00.0 1 a.cpp:1] Iteration 5, loss = 1\n")
    with pytest.raises(DataError, match="other.log holds no outputs of a training"):
        read_log("other.log")
    with pytest.raises(DataError, match="cannot read absent.log"):
        read_log("absent.log")
