"""caffe train: what it writes, how it is stopped, and what does not stop it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import caffe
from caffe.callbacks import SolverAction
from caffe_tools.signals import SignalHandler

ITERATION = "Iteration "

needs_sighup = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")


def endless(folder: Path, extra: str = "") -> None:
    text = (folder / "solver.prototxt").read_text().replace("max_iter: 10", "max_iter: 100000000")
    (folder / "solver.prototxt").write_text(text.replace("display: 5", "display: 1") + extra)


def wait_for(stream, text: str) -> list[str]:
    """Lines up to the one that holds text."""
    lines = []
    for line in stream:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"no {text!r} in {''.join(lines)}")


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if ".tmp" in path.name]


def test_says_where_the_snapshot_lies(cli, tiny):
    done = cli("train", "-solver", "solver.prototxt")
    assert done.status == 0
    lines = [line.split("] ", 1)[1] for line in done.err.splitlines() if "] " in line]
    memory = re.fullmatch(
        r"Peak memory of this process: [\d.]+ [MG]iB \(memory required for data: .*\)", lines[-2]
    )
    assert memory is not None
    assert [lines[-3], lines[-1]] == [
        "Optimization Done.",
        "The trained parameters are in tiny_iter_10.caffemodel; "
        "to train on: -snapshot tiny_iter_10.solverstate",
    ]
    assert (tiny / "tiny_iter_10.caffemodel").is_file()
    assert (tiny / "tiny_iter_10.solverstate").is_file()
    # As it says: on from there.
    (tiny / "solver.prototxt").write_text((tiny / "solver.prototxt").read_text().replace("10", "12"))
    done = cli("train", "-solver", "solver.prototxt", "-snapshot", "tiny_iter_10.solverstate")
    assert "Resuming from tiny_iter_10.solverstate" in done.err
    assert (tiny / "tiny_iter_12.solverstate").is_file()


def test_without_a_snapshot_it_says_so(cli, tiny):
    with open("solver.prototxt", "a") as file:
        file.write("snapshot_after_train: false")
    assert "No snapshot was written" in cli("train", "-solver", "solver.prototxt").err


def test_weights_from_several_files(cli, tiny):
    net = caffe.Net("net.prototxt", caffe.TRAIN)
    net.params["ip"][0].data[...] = 3
    net.save("a.caffemodel")
    net.params["ip"][0].data[...] = 5
    net.save_hdf5("b.h5")
    with open("solver.prototxt", "a") as file:
        file.write("lr_policy: 'fixed' weight_decay: 0")
    text = (
        Path("solver.prototxt")
        .read_text()
        .replace("base_lr: 0.1", "base_lr: 0")
        .replace("lr_policy: 'fixed'", "")
    )
    Path("solver.prototxt").write_text(text)
    done = cli("train", "-solver", "solver.prototxt", "-weights", "a.caffemodel,b.h5")
    assert [line.rpartition(" ")[2] for line in done.err.splitlines() if "Finetuning" in line] == [
        "a.caffemodel",
        "b.h5",
    ]
    trained = caffe.Net("net.prototxt", "tiny_iter_10.caffemodel", caffe.TEST)
    np.testing.assert_array_equal(trained.params["ip"][0].data, 5)


def test_level_and_stage_choose_layers(cli, tiny):
    with open("net.prototxt", "a") as file:
        file.write(
            'layer { name: "extra" type: "Silence" bottom: "data" '
            'include { min_level: 2 stage: "a" stage: "b" } }\n'
            'layer { name: "plain" type: "Silence" bottom: "data" exclude { min_level: 2 } }'
        )
    done = cli("train", "-solver", "solver.prototxt", "-level", "2", "-stage", "a,b")
    assert "Creating Layer extra" in done.err and "Creating Layer plain" not in done.err
    done = cli("train", "-solver", "solver.prototxt")
    assert "Creating Layer extra" not in done.err and "Creating Layer plain" in done.err
    # The solver's own train_state stays without the flag.
    with open("solver.prototxt", "a") as file:
        file.write('train_state { level: 2 stage: "a" }')
    assert "Creating Layer extra" in cli("train", "-solver", "solver.prototxt", "-stage=b").err


@pytest.mark.filterwarnings("error")
def test_a_nan_is_explained_once(cli, tiny):
    net = Path("net.prototxt").read_text().replace("SoftmaxWithLoss", "EuclideanLoss")
    Path("net.prototxt").write_text(net.replace("shape { dim: 4 }", "shape { dim: 4 dim: 2 }"))
    solver = Path("solver.prototxt").read_text().replace("base_lr: 0.1", "base_lr: 1e30")
    Path("solver.prototxt").write_text(solver.replace("display: 5", "display: 1"))
    done = cli("train", "-solver", "solver.prototxt")
    assert done.status == 0
    (warning,) = [line for line in done.err.splitlines() if line.startswith("W")]
    assert re.search(r"Iteration \d: the loss is (nan|inf)\. It appears first in layer '(ip|loss)'", warning)
    assert "a base_lr ten times smaller" in warning
    assert re.search(r"Iteration 9 \(.*\), loss = nan$", done.err, re.M)


@pytest.mark.parametrize("interval", [4, 5])
def test_a_full_disk_ends_no_training_but_the_last_snapshot_is_an_error(tiny, interval):
    pytest.importorskip("resource")
    with open("solver.prototxt", "a") as file:
        file.write(f"snapshot: {interval}")
    code = (
        "import resource, sys; from caffe_tools import main; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)); sys.exit(main.run(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "train", "-solver", "solver.prototxt"],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert len(re.findall(r"^W.*Training goes on without this snapshot$", done.stderr, re.M)) == 2
    assert "caffe: error: cannot write the snapshot tiny_iter_10.caffemodel: File too large" in done.stderr
    assert not list(tiny.glob("*tiny_iter*"))


# -- signals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", list(SolverAction))
def test_each_signal_asks_for_its_action_once(effect):
    with SignalHandler(effect, SolverAction.NONE) as handler:
        signal.raise_signal(signal.SIGINT)
        assert handler.action() is effect
        assert handler.action() is SolverAction.NONE


def test_signals_are_put_back():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with SignalHandler(SolverAction.STOP, SolverAction.SNAPSHOT):
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_second_request_to_stop_ends_at_once():
    with SignalHandler(SolverAction.STOP, SolverAction.SNAPSHOT):
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(SystemExit) as end:
            signal.raise_signal(signal.SIGINT)
    assert end.value.code == 130


def test_snapshots_and_nothing_may_be_asked_for_again():
    for effect in (SolverAction.SNAPSHOT, SolverAction.NONE):
        with SignalHandler(effect, SolverAction.NONE) as handler:
            for _ in range(3):
                signal.raise_signal(signal.SIGINT)
            assert handler.action() is effect
            assert handler.action() is SolverAction.NONE


@needs_sighup
def test_sighup_snapshots_and_sigterm_stops(start, tiny):
    endless(tiny)
    process = start("train", "-solver", "solver.prototxt", cwd=tiny)
    wait_for(process.stderr, ITERATION)
    process.send_signal(signal.SIGHUP)
    lines = wait_for(process.stderr, "Snapshotting solver state")
    first = lines[-1].split()[-1]
    wait_for(process.stderr, ITERATION)
    process.send_signal(signal.SIGTERM)
    rest = process.stderr.read()
    assert process.wait(60) == 0
    assert "Optimization stopped early." in rest
    states = {path.name for path in tiny.glob("*.solverstate")}
    assert first in states and len(states) == 2
    assert not leftovers(tiny)


def test_the_snapshot_survives_the_end_of_tee(start, tiny):
    endless(tiny)
    read, write = os.pipe()
    process = start("train", "-solver", "solver.prototxt", cwd=tiny, stdout=write, stderr=write)
    os.close(write)
    with open(read) as tee:
        wait_for(tee, ITERATION)
    # The reader is gone, as tee is after Ctrl-C; then the same Ctrl-C reaches the training.
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    (state,) = tiny.glob("*.solverstate")
    assert state.with_suffix(".caffemodel").is_file()
    assert not leftovers(tiny)


def test_a_second_ctrl_c_ends_a_long_iteration(start, tiny):
    (tiny / "slow.py").write_text(
        "import time, caffe\n"
        "class Slow(caffe.Layer):\n"
        "    def setup(self, bottom, top): pass\n"
        "    def reshape(self, bottom, top): pass\n"
        "    def forward(self, bottom, top):\n"
        "        open('inside', 'w').close(); time.sleep(600)\n"
        "    def backward(self, top, propagate_down, bottom): pass\n"
    )
    with open("net.prototxt", "a") as file:
        file.write(
            'layer { name: "slow" type: "Python" bottom: "data" '
            'python_param { module: "slow" layer: "Slow" } }'
        )
    path = os.pathsep.join(filter(None, [str(tiny), os.environ.get("PYTHONPATH")]))
    process = start("train", "-solver", "solver.prototxt", cwd=tiny, env={**os.environ, "PYTHONPATH": path})
    wait_for(process.stderr, "Learning Rate Policy")
    while not (tiny / "inside").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    wait_for(process.stderr, "Ctrl-C again ends at once")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert "Traceback" not in process.stderr.read()
    assert not list(tiny.glob("tiny_iter*"))


def test_the_terminal_is_closed(tiny):
    pty = pytest.importorskip("pty")
    endless(tiny)
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "caffe_tools", "train", "-solver", "solver.prototxt"]
    process = subprocess.Popen(command, stderr=slave, env={**os.environ, "TERM": "xterm-256color"})
    os.close(slave)
    with open(master, errors="replace") as terminal:
        wait_for(terminal, ITERATION)
    # Training goes on in silence, and still does what it is told.
    process.send_signal(signal.SIGHUP)
    while not list(tiny.glob("*.solverstate")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert len(list(tiny.glob("*.solverstate"))) == 2
    assert not leftovers(tiny)


def test_progress_bar_on_a_terminal_only(tiny):
    pty = pytest.importorskip("pty")
    endless(tiny)
    (tiny / "solver.prototxt").write_text((tiny / "solver.prototxt").read_text().replace("100000000", "300"))
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "caffe_tools", "train", "-solver", "solver.prototxt"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    process = subprocess.Popen(command, stderr=slave, stdout=subprocess.DEVNULL, env=environment)
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # Linux: the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(master)
    assert process.wait(60) == 0
    text = shown.decode()
    assert "iter/s" in re.sub(r"\([^)]*\)", "", text)
    assert re.search(r"] Iteration 299 \(.*\), loss = [\d.]+\r\n", text)
