"""Snapshots: formats, what is refused with nothing changed, what a kill or a full disk leaves behind."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

import caffe
from caffe import net_weights
from caffe.errors import CaffeError, SnapshotError, WeightsError
from caffe.proto import caffe_pb2
from solvers.support import NET, params, solver_of

RECIPE = "base_lr: 0.1 momentum: 0.9 "
FORMATS = {"BINARYPROTO": "", "HDF5": ".h5"}
both = pytest.mark.parametrize("format", FORMATS)


def snapshot(
    recipe: str = RECIPE, format: str = "BINARYPROTO", iterations: int = 2
) -> tuple[caffe.SGDSolver, str]:
    solver = solver_of(recipe + f" snapshot_format: {format}")
    solver.step(iterations)
    return solver, solver.snapshot()


def everything(solver: caffe.SGDSolver) -> list[np.ndarray]:
    return (
        params(solver)
        + [h.data.copy() for h in solver.history]
        + [np.array([solver.iter, solver.current_step])]
    )


def refused(
    path: str, words: str, recipe: str = RECIPE, error: type[CaffeError] = SnapshotError, net: str = NET
) -> str:
    """Restoring raises, and leaves the solver as it was."""
    solver = solver_of(recipe, net=net)
    solver.step(1)
    before = everything(solver)
    with pytest.raises(error, match=words) as caught:
        solver.restore(path)
    for a, b in zip(before, everything(solver), strict=True):
        np.testing.assert_array_equal(a, b)
    return str(caught.value)


# -- formats ----------------------------------------------------------------------------------------------


@both
def test_names_and_log_lines(format: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "caffe.solver")
    ending = FORMATS[format]
    _, state = snapshot(format=format)
    assert state == f"s_iter_2.solverstate{ending}"
    assert sorted(os.listdir()) == ["resume_s_iter_2.npz", f"s_iter_2.caffemodel{ending}", state]
    kind = "HDF5" if ending else "binary proto"
    assert [r.getMessage() for r in caplog.records if "Snapshotting" in r.getMessage()] == [
        f"Snapshotting to {kind} file s_iter_2.caffemodel{ending}",
        f"Snapshotting solver state to {kind} file {state}",
    ]


def test_binary_states_are_messages_of_the_original() -> None:
    solver, path = snapshot(RECIPE + 'type: "Adam" lr_policy: "multistep" gamma: 0.5 stepvalue: 1')
    state = caffe_pb2.SolverState.FromString(Path(path).read_bytes())
    assert (state.iter, state.learned_net, state.current_step) == (2, "s_iter_2.caffemodel", 1)
    assert [tuple(blob.shape.dim) for blob in state.history] == [(3, 5), (3,)] * 2
    for blob, history in zip(state.history, solver.history, strict=True):
        np.testing.assert_array_equal(np.array(blob.data, "f"), history.data.ravel())


def test_hdf5_states_are_as_the_originals() -> None:
    """To the types: C programs rely on the zero that ends the name."""
    solver, path = snapshot(RECIPE + 'type: "Adam" lr_policy: "multistep" gamma: 0.5 stepvalue: 1', "HDF5")
    with h5py.File(path) as file:
        assert sorted(file) == ["current_step", "history", "iter", "learned_net"]
        for name, value in (("iter", 2), ("current_step", 1)):
            assert (file[name].shape, file[name].dtype, file[name][0]) == ((1,), np.dtype("<i4"), value)
        name = file["learned_net"]
        kind = name.id.get_type()
        assert (name.shape, kind.get_size(), kind.get_strpad()) == ((), 23, h5py.h5t.STR_NULLTERM)
        assert name[()] == b"s_iter_2.caffemodel.h5"
        assert sorted(file["history"]) == ["0", "1", "2", "3"]
        for i, history in enumerate(solver.history):
            assert file["history"][str(i)].dtype == np.dtype("<f4")
            np.testing.assert_array_equal(file["history"][str(i)][()], history.data)


def contents(path: str) -> dict[str, object]:
    """Every object of an HDF5 file: the times at which it was written are no part of that."""
    found: dict[str, object] = {}

    def note(name: str, item: h5py.Dataset | h5py.Group) -> None:
        value = item[()] if isinstance(item, h5py.Dataset) else b""
        found[name] = (
            getattr(item, "dtype", None),
            getattr(item, "shape", None),
            np.asarray(value).tobytes(),
        )

    with h5py.File(path) as file:
        file.visititems(note)
    return found


@pytest.mark.parametrize("case", ["sgd_fixed", "adam_mults_l2", "nesterov_poly", "adagrad_multistep"])
def test_what_the_original_wrote_comes_out_again_byte_for_byte(
    case: str, golden: Path, tmp_path: Path
) -> None:
    shutil.copytree(golden / "solvers", tmp_path, dirs_exist_ok=True)
    for ending, recipe, prefix in (("", "solver", "bin"), (".h5", "solver_h5", "h5")):
        model, state = (f"{case}/{prefix}_iter_10.{kind}{ending}" for kind in ("caffemodel", "solverstate"))
        read = contents if ending else (lambda path: Path(path).read_bytes())
        originals = [read(model), read(state)]
        solver = caffe.get_solver(f"{case}/{recipe}.prototxt")
        solver.restore(state)
        assert solver.snapshot() == state
        assert [read(model), read(state)] == originals


@both
def test_diffs_on_request(format: str) -> None:
    solver, _ = snapshot(RECIPE + "snapshot_diff: true", format)
    diff = solver.net.params["ip"][0].diff
    if format == "HDF5":
        with h5py.File("s_iter_2.caffemodel.h5") as file:
            np.testing.assert_array_equal(file["diff/ip/0"][()], diff)
    else:
        net = caffe_pb2.NetParameter.FromString(Path("s_iter_2.caffemodel").read_bytes())
        np.testing.assert_array_equal(np.array(net.layer[1].blobs[0].diff, "f"), diff.ravel())
    restored = solver_of(RECIPE)
    restored.restore(solver.last_snapshot)


@both
def test_the_model_is_found_as_written_or_beside(format: str) -> None:
    Path("there").mkdir()
    solver, state = snapshot(RECIPE + 'snapshot_prefix: "there/s"', format)
    model = f"there/s_iter_2.caffemodel{FORMATS[format]}"
    other = solver_of(RECIPE)
    other.restore(state)
    Path("elsewhere").mkdir()
    for path in Path("there").iterdir():
        path.rename(Path("elsewhere") / path.name)
    moved = state.replace("there", "elsewhere")
    third = solver_of(RECIPE)
    third.restore(moved)
    for a, b, c in zip(params(solver), params(other), params(third), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    Path(model.replace("there", "elsewhere")).unlink()
    text = refused(moved, "which is neither there nor at")
    assert model in text and model.replace("there", "elsewhere") in text


def test_a_state_without_weights_goes_on_with_those_that_are_there() -> None:
    _, path = snapshot()
    state = caffe_pb2.SolverState.FromString(Path(path).read_bytes())
    state.ClearField("learned_net")
    Path(path).write_bytes(state.SerializeToString())
    solver = solver_of(RECIPE)
    before = params(solver)
    solver.restore(path)
    assert solver.iter == 2
    for a, b in zip(before, params(solver), strict=True):
        np.testing.assert_array_equal(a, b)


@both
def test_a_later_snapshot_of_the_same_name_takes_the_place(format: str) -> None:
    snapshot(format=format)
    solver, state = snapshot(RECIPE + "random_seed: 5", format)
    other = solver_of(RECIPE)
    other.restore(state)
    for a, b in zip(params(solver), params(other), strict=True):
        np.testing.assert_array_equal(a, b)


# -- refusals ---------------------------------------------------------------------------------------------


def test_of_another_solver_type() -> None:
    _, state = snapshot()
    text = "s_iter_2.solverstate was written by a solver of type SGD, this one is Nesterov"
    refused(state, text, RECIPE + 'type: "Nesterov"')
    refused(state, "of type SGD, this one is Adam", RECIPE + 'type: "Adam"')
    # Without the resume file (the original's states have none) the number of blobs tells.
    Path("resume_s_iter_2.npz").unlink()
    words = (
        "Incorrect length of history blobs: 2 in the file, and this Adam solver has 4. It belongs to another "
    )
    refused(
        state,
        words + r"solver type \(AdaGrad, Nesterov, RMSProp, SGD\) or another net",
        RECIPE + 'type: "Adam"',
    )


@both
def test_of_another_net(format: str) -> None:
    _, state = snapshot(format=format)
    wider = NET % (6, 6)
    wider = wider.replace("num_output: 3", "num_output: 4").replace("dim: 3", "dim: 4")
    refused(
        state,
        r"history blob 0 has shape \(3, 5\), this solver needs \(4, 5\); it belongs to another net",
        net=wider,
    )
    parts = wider.replace('top: "y"', 'top: "y0"').split('layer { name: "loss"')
    middle = 'layer { name: "ip2" type: "InnerProduct" bottom: "y0" top: "y" '
    middle += "inner_product_param { num_output: 4 } }"
    deeper = parts[0] + middle + 'layer { name: "loss"' + parts[1]
    refused(state, "2 in the file, and this SGD solver has 4. It belongs to another net", net=deeper)


def test_of_a_net_whose_layers_fit_by_chance() -> None:
    """The history fits, the weights do not: nothing is changed, either."""
    _, state = snapshot()
    model = caffe_pb2.NetParameter.FromString(Path("s_iter_2.caffemodel").read_bytes())
    model.layer[1].blobs[1].shape.dim[:] = [1, 3]
    Path("s_iter_2.caffemodel").write_bytes(model.SerializeToString())
    refused(state, "Cannot copy param 1 weights from layer 'ip'; shape mismatch", error=WeightsError)


@both
def test_weights_given_for_a_state(format: str) -> None:
    snapshot(format=format)
    model = f"s_iter_2.caffemodel{FORMATS[format]}"
    refused(model, "holds weights, not a solver's state: give the .solverstate")
    renamed = f"x.solverstate{FORMATS[format]}"
    Path(model).rename(renamed)
    refused(renamed, "is no solver state")


def test_weights_of_which_some_are_missing(caplog: pytest.LogCaptureFixture) -> None:
    """A file that was cut between two layers is a valid message."""
    _, state = snapshot()
    model = caffe_pb2.NetParameter.FromString(Path("s_iter_2.caffemodel").read_bytes())
    del model.layer[1:]
    Path("s_iter_2.caffemodel").write_bytes(model.SerializeToString())
    solver_of(RECIPE).restore(state)
    assert "s_iter_2.caffemodel lacks the parameters of ip" in caplog.text


def test_a_state_that_is_not_there() -> None:
    refused("nothing.solverstate", "there is no solver state nothing.solverstate")


@both
@pytest.mark.parametrize("size", [0, 1, 7, 0.3, 0.7, 0.9])
@pytest.mark.parametrize("which", ["solverstate", "caffemodel"])
def test_truncated(format: str, size: float, which: str) -> None:
    _, state = snapshot(format=format)
    path = Path(f"s_iter_2.{which}{FORMATS[format]}")
    data = path.read_bytes()
    path.write_bytes(data[: size if isinstance(size, int) else int(size * len(data))])
    error = SnapshotError if which == "solverstate" else WeightsError
    assert path.name in refused(state, ".", error=error)


def test_a_history_that_is_damaged() -> None:
    _, path = snapshot()
    state = caffe_pb2.SolverState.FromString(Path(path).read_bytes())
    del state.history[1].data[-1]
    Path(path).write_bytes(state.SerializeToString())
    refused(path, r"history blob 1 has 2 values for shape \(3,\): damaged")


@pytest.mark.parametrize("name", ["iter", "current_step", "learned_net", "history", "history/0"])
@pytest.mark.parametrize("value", [np.dtype("f"), np.zeros(0), "text", h5py.Empty("f"), None], ids=repr)
def test_an_hdf5_state_that_holds_something_else(name: str, value: object) -> None:
    _, state = snapshot(format="HDF5")
    with h5py.File(state, "r+") as file:
        del file[name]
        if value is None:
            file.create_group(name)
        else:
            file[name] = value
    if name == "learned_net":
        with contextlib.suppress(SnapshotError):  # nothing may stand for: no weights
            solver_of(RECIPE).restore(state)
    else:
        refused(state, state)


# -- where it cannot be written ---------------------------------------------------------------------------


def test_a_folder_that_is_not_there_is_found_at_the_start() -> None:
    words = "Cannot write to snapshot prefix 'no/s'.  Make sure that the directory exists and is writable"
    with pytest.raises(SnapshotError, match=re.escape(words)):
        solver_of(RECIPE + 'snapshot_prefix: "no/s"')
    solver_of(RECIPE + 'snapshot_prefix: "no/s" snapshot_after_train: false')


@pytest.mark.parametrize(
    ("prefix", "reason"),
    [
        pytest.param(
            "/proc/x",
            "No such file or directory",
            marks=pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder that refuses all"),
        ),
        ("n" * 240, "File name too long"),
        (r"a\000b", "embedded null"),
    ],
)
def test_a_prefix_that_takes_no_files_is_found_at_the_start(prefix: str, reason: str) -> None:
    with pytest.raises(SnapshotError, match=f"Cannot write to snapshot prefix '.*exists and is .*: {reason}"):
        solver_of(RECIPE + f'snapshot_prefix: "{prefix}"')
    solver_of(RECIPE + f'snapshot_prefix: "{"n" * 230}"')
    assert os.listdir() == []


def test_a_full_disk_at_the_start_may_have_room_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "touch", full)
        solver = solver_of(RECIPE)
    solver.step(1)
    assert Path(solver.snapshot()).exists()


def test_too_large_for_the_format_is_found_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net_weights, "BINARY_LIMIT", 100)
    with pytest.raises(
        SnapshotError, match=r"the .solverstate of this net would have .*Write `snapshot_format: HDF5`"
    ):
        solver_of(RECIPE + 'type: "Adam" snapshot: 5')
    solver_of(RECIPE + "snapshot: 5")
    monkeypatch.setattr(net_weights, "BINARY_LIMIT", 70)
    with pytest.raises(SnapshotError, match=r"the .caffemodel of this net would have"):
        solver_of(RECIPE + "max_iter: 3").solve()
    solver = solver_of(RECIPE + "max_iter: 3")
    solver.step(1)  # a script that never asks for one is not disturbed
    with pytest.raises(SnapshotError, match="use save_hdf5, or snapshot_format: HDF5 in the solver"):
        solver.snapshot()
    solver = solver_of(RECIPE + "snapshot_format: HDF5 snapshot: 1 max_iter: 2")
    solver.solve()
    assert Path("s_iter_2.solverstate.h5").exists()


def test_a_failure_on_the_way_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    Path("there").mkdir()
    solver = solver_of(RECIPE + 'snapshot_prefix: "there/s" snapshot: 2 max_iter: 6')
    solver.step(1)
    Path("there").rmdir()
    solver.step(2)
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warning.startswith(
        "cannot write the snapshot there/s_iter_2.caffemodel: No such file or directory"
    )
    assert warning.endswith("Training goes on without this snapshot")
    Path("there").mkdir()
    solver.step(1)
    assert solver.last_snapshot == "there/s_iter_4.solverstate"
    Path(solver.last_snapshot).unlink()
    for path in Path("there").iterdir():
        path.unlink()
    Path("there").rmdir()
    with pytest.raises(SnapshotError):
        solver.snapshot()  # asked for by a script: that is an error


def test_the_last_snapshot_is_tried_again_and_its_failure_an_error() -> None:
    """Also where the last iteration is one of those after which there is a snapshot anyway."""
    Path("there").mkdir()
    solver = solver_of(RECIPE + 'snapshot_prefix: "there/s" snapshot: 2 max_iter: 4')
    Path("there").rmdir()
    with pytest.raises(SnapshotError, match="cannot write the snapshot there/s_iter_4.caffemodel"):
        solver.solve()
    Path("there").mkdir()
    solver.solve()
    assert solver.last_snapshot == "there/s_iter_4.solverstate"
    Path(solver.last_snapshot).unlink()
    solver.solve()
    assert not Path(solver.last_snapshot).exists(), "once it is written, it is not written again"


FULL_DISK = """
import resource, sys
sys.path[:0] = {path!r}
from solvers.support import solver_of
solver = solver_of("base_lr: 0.1 snapshot: 2 max_iter: 4 snapshot_format: {format}", net=open("net").read())
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
solver.step(4)
print(solver.iter)
"""


@both
def test_a_full_disk_leaves_nothing_and_ends_nothing(format: str) -> None:
    pytest.importorskip("resource")
    parameter = 'layer { name: "p" type: "Parameter" top: "p" parameter_param { shape { dim: 100000 } } } '
    Path("net").write_text(
        parameter + 'layer { name: "l" type: "Reduction" bottom: "p" top: "l" loss_weight: 1 }'
    )
    code = FULL_DISK.format(path=sys.path, format=format)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "4\n", done.stderr
    assert [line.partition(": ")[2] for line in done.stderr.splitlines()] == [
        "File too large. Training goes on without this snapshot"
    ] * 2
    assert os.listdir() == ["net"]


# -- killed ----------------------------------------------------------------------------------------------

# Five iterations, over and over, a snapshot after each. All weights of run r are 1000 r - lr r iter, and the
# history is lr r: a weights file beside another run's state shows.
KILLED = """
import sys
sys.path[:0] = {path!r}
from test_snapshot import killed_solver
run = int(sys.argv[1])
solver = killed_solver(run, {format!r})
print("ready", flush=True)
while True:
    solver.net.params["p"][0].data[...] = 1000 * run
    solver.iter = 0
    solver.step(5)
"""


def killed_solver(run: int, format: str) -> caffe.SGDSolver:
    net = f"""
    layer {{ name: "p" type: "Parameter" top: "p" parameter_param {{ shape {{ dim: 50000 }} }} }}
    layer {{ name: "l" type: "Reduction" bottom: "p" top: "l" loss_weight: {run} }}
    """
    return solver_of(f"base_lr: 0.5 snapshot: 1 snapshot_format: {format}", net=net)


def check_complete(format: str, caplog: pytest.LogCaptureFixture) -> int:
    """Every snapshot that has its state loads, and its files are of one run; returns how many there are."""
    states = [path for path in Path().glob("s_iter_*") if ".solverstate" in path.name]
    for state in states:
        caplog.clear()
        solver = killed_solver(1, format)
        solver.restore(str(state))
        assert not [r for r in caplog.records if r.levelno >= logging.WARNING], (
            "the resume file is its own, too"
        )
        iteration = int(re.fullmatch(r"s_iter_(\d)\.solverstate(\.h5)?", state.name)[1])
        assert solver.iter == iteration
        history = np.unique(solver.history[0].data)
        weights = np.unique(solver.net.params["p"][0].data)
        run = float(history[0]) / 0.5
        np.testing.assert_array_equal(history, np.float32([0.5 * run]))
        np.testing.assert_array_equal(weights, np.float32([1000 * run - 0.5 * run * iteration]))
    return len(states)


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.full)])
@both
def test_killed_at_any_moment(format: str, kills: int, caplog: pytest.LogCaptureFixture) -> None:
    moments = random.Random(5)
    code = KILLED.format(path=sys.path, format=format)
    complete = 0
    for run in range(1, kills + 1):
        process = subprocess.Popen([sys.executable, "-c", code, str(run)], stdout=subprocess.PIPE)
        try:
            assert process.stdout.readline() == b"ready\n"
            time.sleep(moments.uniform(0.0, 0.2))
        finally:
            process.kill()
            process.communicate()
        complete += check_complete(format, caplog)
    assert complete
    killed_solver(1, format)
    assert not list(Path().glob(".*.tmp")), "what the killed left is removed by the next training"
