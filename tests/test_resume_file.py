"""Resuming: an interrupted training ends in the same bits as one that was not, in a process of its own and
with all that has a state; and what happens without the resume file."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import caffe
from caffe import resume_file
from caffe.callbacks import SolverAction
from caffe.db import open_db
from caffe.errors import DataError, SnapshotError
from caffe.proto import caffe_pb2
from solvers.support import params, solver_of

# Random crops and mirrors, places in databases that are no multiple of the batch, dropout, test nets.
IMAGES = """
name: "images"
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
        transform_param { crop_size: 6 mirror: true scale: 0.01 }
        data_param { source: "train_lmdb" backend: LMDB batch_size: 7 rand_skip: 5 } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
        transform_param { crop_size: 6 scale: 0.01 }
        data_param { source: "test_lmdb" backend: LMDB batch_size: 4 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "drop" type: "Dropout" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
        inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""

# Shuffled HDF5 files, a state carried over by an LSTM, noise made by the net, a Python layer that counts.
SEQUENCES = """
name: "sequences"
layer { name: "data" type: "HDF5Data" top: "x" top: "cont"
        hdf5_data_param { source: "list.txt" batch_size: 6 shuffle: true } }
layer { name: "made" type: "DummyData" top: "noise" top: "target"
        dummy_data_param { shape { dim: 6 dim: 2 dim: 3 } shape { dim: 6 dim: 2 dim: 4 }
                           data_filler { type: "gaussian" std: 0.3 } } }
layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "noise" top: "sum" }
layer { name: "count" type: "Python" bottom: "sum" top: "counted"
        python_param { module: "counting" layer: "Counting" } }
layer { name: "lstm" type: "LSTM" bottom: "counted" bottom: "cont" top: "lstm"
        recurrent_param { num_output: 4 weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "lstm" bottom: "target" top: "loss" }
"""

COUNTING = """
import caffe
import numpy as np

class Counting(caffe.Layer):
    \"\"\"Scales by a random walk of its own.\"\"\"

    def setup(self, bottom, top):
        self.rng, self.calls, self.scale = np.random.default_rng(), 0, np.ones(3, np.float32)

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        self.calls += 1
        self.scale += self.rng.standard_normal(3).astype(np.float32) * 0.01
        top[0].data[...] = bottom[0].data * self.scale

    def backward(self, top, propagate_down, bottom):
        pass

    def save_state(self):
        return {"rng": self.rng.bit_generator.state, "calls": self.calls, "scale": self.scale, "who": "ünd"}

    def load_state(self, state):
        assert state["who"] == "ünd"
        self.rng.bit_generator.state = state["rng"]
        self.calls, self.scale = state["calls"], state["scale"]
"""

SOLVER = """
net: "net.prototxt" type: "%s" base_lr: 0.003 momentum: 0.9
lr_policy: "multistep" gamma: 0.5 stepvalue: 40 stepvalue: 60 stepvalue: 130
max_iter: 200 average_loss: 7 weight_decay: 0.001 snapshot_format: %s iter_size: 2
test_iter: 3 test_iter: 2 test_interval: 30
"""

# Trains, and writes everything that must not depend on an interruption.
PROGRAM = """
import sys
import numpy as np
import caffe

recipe, resume, out = sys.argv[1:]
solver = caffe.get_solver(recipe)
losses, means = [], []
for net in solver.test_nets[:1]:
    last = len(net.layers) - 1
    net.after_forward(lambda i: losses.append(float(net.blobs["loss"].data)) if i == last else None)
solver.add_callback(None, lambda: means.append(solver.smoothed_loss))
solver.solve(resume or None)
arrays = [p.blob.data for p in solver.net.learnable] + [h.data for h in solver.history]
np.savez(out, *arrays, means=means[-100:], tests=losses, iter=solver.iter)
"""


def run(recipe: str, out: str, resume: str = "") -> dict[str, np.ndarray]:
    """In a process of its own, which has no seed but what the recipe or the resume file gives."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, recipe, resume, out],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "There is no" not in done.stderr
    with np.load(out) as archive:
        return dict(archive)


def write_images() -> None:
    rng = np.random.default_rng(0)
    for name, count in (("train_lmdb", 31), ("test_lmdb", 9)):
        with open_db(name, "lmdb", "new") as db:
            transaction = db.transaction()
            for i in range(count):
                image = rng.integers(0, 256, (2, 8, 8), dtype=np.uint8).tobytes()
                datum = caffe_pb2.Datum(channels=2, height=8, width=8, label=i % 3, data=image)
                transaction.put(b"%05d" % i, datum.SerializeToString())
            transaction.commit()


def write_sequences() -> None:
    rng = np.random.default_rng(0)
    for i, rows in enumerate((11, 5)):
        with h5py.File(f"f{i}.h5", "w") as file:
            file["x"] = rng.standard_normal((rows, 2, 3)).astype("f")
            file["cont"] = (rng.random((rows, 2)) < 0.9).astype("f")
    Path("list.txt").write_text("f0.h5\nf1.h5\n")
    Path("counting.py").write_text(COUNTING)


@pytest.mark.parametrize(("kind", "format"), [("images", "BINARYPROTO"), ("sequences", "HDF5")])
def test_200_iterations_are_100_and_100(kind: str, format: str) -> None:
    if kind == "images":
        write_images()
        Path("net.prototxt").write_text(IMAGES)
        type = "SGD"
    else:
        write_sequences()
        Path("net.prototxt").write_text(SEQUENCES)
        type = "Adam"
    ending = ".h5" if format == "HDF5" else ""
    recipe = SOLVER % (type, format)
    Path("whole.prototxt").write_text(recipe + 'snapshot_prefix: "whole" random_seed: 7 snapshot: 100')
    Path("rest.prototxt").write_text(recipe + 'snapshot_prefix: "rest"')
    whole = run("whole.prototxt", "whole.npz")
    rest = run("rest.prototxt", "rest.npz", f"whole_iter_100.solverstate{ending}")
    assert whole["iter"] == rest["iter"] == 200
    # Tests at 120, 150 and 180 of three batches each.
    tests = whole.pop("tests")
    np.testing.assert_array_equal(rest.pop("tests"), tests[-9:])
    for name, array in whole.items():
        np.testing.assert_array_equal(rest[name], array, err_msg=name)


@pytest.mark.parametrize("request_", [SolverAction.STOP, SolverAction.SNAPSHOT])
def test_interrupted_while_it_tests(request_: SolverAction, caplog: pytest.LogCaptureFixture) -> None:
    """A resumed training does that test anew, on the same records."""
    caplog.set_level(logging.INFO, "caffe.solver")
    write_images()
    # The log's average starts anew in a resumed run.
    recipe = (
        RECIPE.replace("average_loss: 3", "")
        + "test_iter: 3 test_iter: 2 test_interval: 4 max_iter: 11 display: 1 "
    )

    def log_of(solver: caffe.SGDSolver, state: str | None = None) -> list[str]:
        caplog.clear()
        solver.solve(state)
        lines = [record.getMessage() for record in caplog.records]
        lines = [line for line in lines if line.strip().startswith(("Iteration", "Train net", "Test net"))]
        return [re.sub(r" \(.* iter/s.*?\)", "", line) for line in lines]

    whole = log_of(solver_of(recipe, net=IMAGES))
    interrupted = solver_of(recipe, net=IMAGES)
    asked = []

    def action() -> SolverAction:
        if interrupted.iter == 8:
            asked.append(None)
        # After the update, before each of the first net's batches, and before the second net's first.
        return request_ if len(asked) == 5 else SolverAction.NONE

    interrupted.action = action
    log_of(interrupted)
    interrupted.action = lambda: SolverAction.NONE
    assert Path("s_iter_8.solverstate").exists()
    resumed = log_of(solver_of(recipe + "random_seed: 5", net=IMAGES), "s_iter_8.solverstate")
    assert resumed == whole[-len(resumed) :]
    assert resumed[0] == "Iteration 8, Testing net (#0)"


# -- in one process ----------------------------------------------------------------------------------------

RECIPE = "base_lr: 0.1 momentum: 0.9 average_loss: 3 "


def image_solver(extra: str = "") -> caffe.SGDSolver:
    return solver_of(
        RECIPE + "test_iter: 1 test_interval: 1000 test_initialization: false " + extra, net=IMAGES
    )


def test_what_is_in_it() -> None:
    write_images()
    solver = image_solver()
    solver.step(2)
    assert solver.snapshot() == "s_iter_2.solverstate"
    assert sorted(p.name for p in Path().glob("*s_iter*")) == [
        "resume_s_iter_2.npz",
        "s_iter_2.caffemodel",
        "s_iter_2.solverstate",
    ]
    with np.load("resume_s_iter_2.npz", allow_pickle=False) as archive:
        content = json.loads(bytes(archive["resume"]))
    assert content["solver_type"] == "SGD"
    assert content["loss_window"] == list(solver.loss_window)
    train, test = content["nets"]
    assert train["seed"] == list(solver.net.run.seed) != test["seed"]
    (entry,) = train["layers"]
    assert (entry["name"], entry["type"]) == ("data", "Data")
    # The records that were used, however many have been read ahead.
    assert entry["state"] == {"position": solver.net.layers[0].position}
    assert test["layers"][0]["state"] == {"position": 0}


def test_without_it_there_is_a_warning_and_data_begin_anew(caplog: pytest.LogCaptureFixture) -> None:
    write_images()
    solver = image_solver()
    solver.step(2)
    state = solver.snapshot()
    Path("resume_s_iter_2.npz").unlink()
    other = image_solver()
    start = other.net.layers[0].position
    other.restore(state)
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warning.startswith("There is no resume_s_iter_2.npz. Data layers begin anew")
    assert other.net.layers[0].position == start
    assert (other.iter, len(other.loss_window)) == (2, 0)
    for a, b in zip(params(solver), params(other), strict=True):
        np.testing.assert_array_equal(a, b)


def test_it_is_looked_for_beside_the_solver_state() -> None:
    assert resume_file.path_beside("a/b_iter_7.solverstate") == "a/resume_b_iter_7.npz"
    assert resume_file.path_beside("b_iter_7.solverstate.h5") == "resume_b_iter_7.npz"
    write_images()
    solver = image_solver()
    solver.step(2)
    solver.snapshot()
    Path("moved").mkdir()
    for path in Path().glob("*s_iter_2*"):
        path.rename(Path("moved") / path.name)
    other = image_solver()
    other.restore("moved/s_iter_2.solverstate")
    assert other.net.layers[0].position == solver.net.layers[0].position
    assert list(other.loss_window) == list(solver.loss_window)


def test_that_of_another_state_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """As when the original overwrote the .solverstate."""
    one, two = solver_of(RECIPE), solver_of(RECIPE)
    one.step(2)
    two.net.params["ip"][0].data[...] += 1
    two.step(2)
    state = one.snapshot()
    mine = Path(state).read_bytes()
    two.snapshot()
    Path(state).write_bytes(mine)
    other = solver_of(RECIPE)
    other.restore(state)
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warning.startswith("resume_s_iter_2.npz belongs to another solver state than s_iter_2.solverstate")
    assert len(other.loss_window) == 0


def snapshot() -> str:
    solver = solver_of(RECIPE)
    solver.step(2)
    return solver.snapshot()


@pytest.mark.parametrize("size", [0, 1, 30, 0.5, 0.99])
def test_damaged(size: float) -> None:
    state = snapshot()
    path = Path("resume_s_iter_2.npz")
    data = path.read_bytes()
    path.write_bytes(data[: size if isinstance(size, int) else int(size * len(data))])
    other = solver_of(RECIPE)
    before = params(other)
    with pytest.raises(
        SnapshotError, match=r"resume_s_iter_2.npz is damaged .*remove it to resume without it"
    ):
        other.restore(state)
    assert other.iter == 0
    for a, b in zip(before, params(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("at", [6, 8, 10], ids=["version", "flags", "compression"])
def test_of_a_kind_that_this_program_does_not_write(at: int) -> None:
    state = snapshot()
    path = Path("resume_s_iter_2.npz")
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + at] = 0x61  # in the archive's list of what it holds
    path.write_bytes(data)
    with pytest.raises(SnapshotError, match=r"resume_s_iter_2.npz is damaged .*remove it to resume"):
        solver_of(RECIPE).restore(state)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(format=99), "written by a newer version"),
        (lambda c: c.pop("nets"), "damaged"),
        (lambda c: c["nets"][0].pop("seed"), "damaged"),
    ],
)
def test_other_contents(change, words: str) -> None:
    state = snapshot()
    rewrite(change)
    with pytest.raises(SnapshotError, match=words):
        solver_of(RECIPE).restore(state)


def rewrite(change) -> None:
    with np.load("resume_s_iter_2.npz") as archive:
        content = json.loads(bytes(archive["resume"]))
    change(content)
    with open("resume_s_iter_2.npz", "wb") as file:
        np.savez(file, resume=np.frombuffer(json.dumps(content).encode(), np.uint8))


def test_layers_that_are_gone_and_nets_that_are_fewer(caplog: pytest.LogCaptureFixture) -> None:
    write_images()
    solver = image_solver()
    solver.step(2)
    state = solver.snapshot()
    other = solver_of(RECIPE, net=IMAGES.replace('name: "data" type', 'name: "other" type'))
    other.restore(state)
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warnings == [
        "resume_s_iter_2.npz holds the state of 2 nets, and there are 1",
        "resume_s_iter_2.npz holds the state of a layer 'data' (Data), which is not in the net any more",
    ]


def test_a_state_that_a_layer_cannot_take_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(os.getcwd())
    write_sequences()
    solver = solver_of(RECIPE, net=SEQUENCES)
    solver.step(3)
    state = solver.snapshot()
    bigger = solver_of(RECIPE, net=SEQUENCES)
    bigger.net.layer_dict["count"].load_state = lambda state: state["missing"]
    with pytest.raises(
        SnapshotError, match=r"layer 'count' \(Python\) cannot go on from its state: KeyError\('missing'\)"
    ):
        bigger.restore(state)
    with h5py.File("f0.h5", "w") as file:
        file["x"], file["cont"] = np.zeros((1, 2, 3)), np.zeros((1, 2))
    Path("list.txt").write_text("f0.h5\n")
    shorter = solver_of(RECIPE, net=SEQUENCES)
    with pytest.raises(DataError, match="layer 'data' .HDF5Data.: (there were 2 files|.*it ends before)"):
        shorter.restore(state)


def test_a_state_that_cannot_be_written() -> None:
    solver = solver_of(RECIPE)
    solver.step(1)
    for value, words in (
        (object(), "of type object"),
        (np.array([None]), "of type ndarray"),
        ({1, 2}, "of type set"),
    ):
        solver.net.layers[1].save_state = lambda value=value: {"x": value}
        with pytest.raises(SnapshotError, match=f"layer 'ip' .InnerProduct.: save_state gives 'x', {words}"):
            solver.snapshot()
    assert not list(Path().iterdir())


def test_other_ranks_draw_numbers_of_their_own() -> None:
    state = snapshot()
    seeds = []
    for rank in (0, 1):
        caffe.set_solver_rank(rank)
        other = solver_of(RECIPE)
        other.restore(state)
        seeds.append(other.net.run.seed)
    # As when random_seed had been given: each rank adds its number.
    assert seeds == [(1, 2), (2, 2)] or seeds[1] == (seeds[0][0] + 1, seeds[0][1])


def test_the_log_begins_its_average_anew_as_the_originals_does() -> None:
    write_images()
    solver = solver_of(RECIPE, net=IMAGES)
    solver.step(4)
    solver.snapshot()
    again = solver_of(RECIPE, net=IMAGES)
    again.restore("s_iter_4.solverstate")
    again.step(1)
    assert again.reported_loss == again.loss_window[-1]
    assert again.smoothed_loss == sum(again.loss_window) / 3 and len(again.loss_window) == 3
