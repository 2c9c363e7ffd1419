"""m.fit against `caffe train` on the files that m.save writes: equal in every bit."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import caffe
from caffe import model as M
from caffe.resources import data_path


def digits(seed: int | None = 3) -> M.Model:
    with M.Model("digits", seed=seed) as m:
        x, y = m.data(
            "dataset://digits/train",
            batch_size=60,
            test="dataset://digits/test",
            test_batch_size=99,
            scale=1 / 255,
        )
        h = m.max_pool(m.conv(x, 8, kernel_size=3), 2)
        h = m.dropout(m.relu(m.fc(h, 32)), 0.3)
        score = m.fc(h, 10, name="score")
        loss = m.softmax_loss(score, y)
        m.accuracy(score, y)
    m.minimize(loss, "SGD", base_lr=0.05, momentum=0.9, lr_policy="inv", gamma=1e-3, power=0.75)
    return m


def trained(solver_file: str, iterations: int) -> caffe.Solver:
    """As `caffe train -solver FILE`, which stops at the file's max_iter."""
    solver = caffe.get_solver(solver_file)
    assert solver.param.max_iter == iterations
    solver.solve()
    return solver


def assert_same_parameters(model: M.Model, solver: caffe.Solver) -> None:
    theirs = [blob for blobs in solver.net.params.values() for blob in blobs]
    ours = [p.data for p in model.parameters.values()]
    assert len(ours) == len(theirs) > 0
    for mine, blob in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, blob.data)


@pytest.mark.parametrize("seed", [3, None])
def test_databases(seed: int | None) -> None:
    m = digits(seed)
    history = m.fit(30, test_every=15)
    m.save("net.prototxt", "net.caffemodel", "solver.prototxt")
    solver = trained("solver.prototxt", 30)
    assert_same_parameters(m, solver)
    assert [i for i, _ in history.tests] == [0, 15, 30]
    assert history.tests[-1][1]["accuracy"] == pytest.approx(float(solver.test(0)["accuracy"]), abs=0)
    net = caffe.Net("net.prototxt", "net.caffemodel", caffe.TEST)
    np.testing.assert_array_equal(net.params["score"][0].data, m.parameters["score/weight"].data)


def test_a_prototxt_read_back_trains_alike() -> None:
    """The reference model of the digits, with its dropout, by its own solver and as a model."""
    folder = data_path("models", "digits")
    solver = caffe.get_solver(str(folder / "solver.prototxt"))
    solver.param.max_iter, solver.param.snapshot_after_train = 12, False
    solver.solve()
    m = M.from_proto(folder / "train_test.prototxt", seed=solver.param.random_seed)
    m.minimize(
        None,
        base_lr=0.05,
        momentum=0.9,
        weight_decay=0.002,
        lr_policy="step",
        gamma=0.1,
        stepsize=450,
    )
    history = m.fit(12, test_every=6)
    assert m.count_test_batches() == 3 and len(history.tests) == 3
    assert_same_parameters(m, solver)


@pytest.mark.parametrize("shuffle", [False, True])
def test_arrays_become_hdf5(shuffle: bool, rng: np.random.Generator) -> None:
    images = rng.integers(0, 256, (50, 1, 6, 6)).astype(np.uint8)
    labels = rng.integers(0, 3, 50)
    with M.Model("arrays", seed=8) as m:
        x, y = m.data((images, labels), batch_size=16, scale=1 / 128, mean=100, shuffle=shuffle)
        loss = m.softmax_loss(m.fc(m.conv(x, 4, 3), 3), y)
    m.minimize(loss, "Adam", base_lr=0.01)
    m.fit(12)
    Path("out").mkdir()
    m.save("out/net.prototxt", solver="out/solver.prototxt")
    assert_same_parameters(m, trained("out/solver.prototxt", 12))
    assert "HDF5Data" in Path("out/net.prototxt").read_text()


@pytest.mark.parametrize("shuffle", [False, True])
def test_snapshots_of_arrays_and_of_their_files_go_on_in_each_other(
    shuffle: bool, rng: np.random.Generator
) -> None:
    images, labels = rng.normal(size=(11, 4)).astype(np.float32), rng.integers(0, 3, 11)

    def make() -> M.Model:
        with M.Model("m", seed=8) as m:
            x, y = m.data((images, labels), batch_size=4, shuffle=shuffle)
            m.minimize(m.softmax_loss(m.fc(x, 3), y), "SGD", base_lr=0.1, momentum=0.9)
        return m

    whole = make()
    whole.fit(9)
    first = make()
    first.fit(5, snapshot_prefix="ours")
    first.save("net.prototxt", solver="solver.prototxt")
    solver = caffe.get_solver("solver.prototxt")
    solver.param.max_iter = 9
    solver.solve("ours_iter_5.solverstate")
    assert_same_parameters(whole, solver)
    solver = caffe.get_solver("solver.prototxt")
    solver.param.max_iter, solver.param.snapshot_prefix = 5, "theirs"
    solver.solve()
    other = make()
    other.fit(9, resume="theirs_iter_5.solverstate")
    for name, p in whole.parameters.items():
        np.testing.assert_array_equal(p.data, other.parameters[name].data)


def test_files_of_arrays_have_names_of_their_own(rng: np.random.Generator) -> None:
    with M.Model("m", seed=8) as m:
        with m.scope("a"):
            x, y = m.data((rng.normal(size=(8, 4)), np.zeros(8)), 4, name="b")
        z = m.data(rng.normal(size=(8, 4)), 4, name="a_b")
        m.minimize(m.softmax_loss(m.fc(m.add(x, z), 3), y), base_lr=0.1)
    m.fit(3)
    m.save("net.prototxt", solver="solver.prototxt")
    assert_same_parameters(m, trained("solver.prototxt", 3))


def test_the_command_itself() -> None:
    m = digits()
    m.minimizer.param.snapshot_prefix = "line"
    m.fit(10, snapshot_prefix="model")
    m.save("net.prototxt", solver="solver.prototxt")
    text = Path("solver.prototxt").read_text()
    Path("solver.prototxt").write_text(re.sub("snapshot_prefix.*", 'snapshot_prefix: "line"', text))
    command = [sys.executable, "-m", "caffe_tools", "train", "-solver", "solver.prototxt"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert Path("line_iter_10.caffemodel").read_bytes() == Path("model_iter_10.caffemodel").read_bytes()


def test_parameters_that_were_created_begin_alike_in_the_files(rng: np.random.Generator) -> None:
    with M.Model(seed=4) as m:
        x, y = m.data((rng.normal(size=(20, 5)), rng.normal(size=(20, 2))), batch_size=10)
        w = m.create_parameter("offset", (10, 2), {"type": "gaussian", "std": 0.5}, lr_mult=2)
        shared = m.fc(x, 2, name="one")
        loss = m.euclidean_loss(m.add(shared, w), y)
    m.minimize(loss, "SGD", base_lr=0.1)
    m.init_net[shared.layer.parameters[1]] = np.array([3.0, -2.0])
    start = w.data.copy()
    assert np.ptp(start) > 0
    m.fit(5)
    m.save("net.prototxt", solver="solver.prototxt")
    solver = trained("solver.prototxt", 5)
    assert_same_parameters(m, solver)
    assert not np.array_equal(w.data, start)


def test_a_training_that_began_with_other_parameters_begins_so_in_the_files(tmp_path: Path) -> None:
    """Loaded, written by hand, trained before: whatever it was."""
    first = digits(1)
    first.fit(3)
    first.save(weights="first.caffemodel")

    def loaded(m: M.Model) -> None:
        m.load("first.caffemodel")

    def written(m: M.Model) -> None:
        m.parameters["score/bias"].data[...] = range(10)

    def by_a_net(m: M.Model) -> None:
        m.net("test").params["score"][0].data[3] = 0

    def trained_before(m: M.Model) -> None:
        m.fit(2)
        m.minimize(m.tops["loss"], "Adam", base_lr=0.001)

    def read(m: M.Model) -> None:
        assert m.parameters["score/bias"].data.shape == (10,)

    for change in (loaded, written, by_a_net, trained_before, read):
        m = digits()
        change(m)
        folder = tmp_path / change.__name__
        folder.mkdir()
        if change in (loaded, written):
            m.save(folder / "before.prototxt", solver=folder / "before_solver.prototxt")
            solver = caffe.get_solver(str(folder / "before_solver.prototxt"))
            assert_same_parameters(m, solver)
        m.fit(4)
        m.save(folder / "net.prototxt", folder / "net.caffemodel", folder / "solver.prototxt")
        assert_same_parameters(m, trained(str(folder / "solver.prototxt"), 4))
        needed = change is not read
        assert (folder / "solver_start.caffemodel").exists() == needed
        assert ("weights:" in (folder / "solver.prototxt").read_text()) == needed


def test_parameters_that_were_drawn_anew_need_no_file(tmp_path: Path) -> None:
    m = digits()
    m.fit(2)
    m.init(seed=9)
    m.fit(3)
    m.save(tmp_path / "net.prototxt", solver=tmp_path / "solver.prototxt")
    assert not (tmp_path / "solver_start.caffemodel").exists()
    assert_same_parameters(m, trained(str(tmp_path / "solver.prototxt"), 3))


def test_snapshots_of_fit_and_of_the_files() -> None:
    """fit writes none unless it is asked to; `caffe train` on the files does, as on any."""
    m = digits()
    m.fit(2)
    assert not list(Path().glob("*.caffemodel"))
    m.save("net.prototxt", solver="solver.prototxt")
    text = Path("solver.prototxt").read_text()
    assert "snapshot" not in text, text
    trained("solver.prototxt", 2)
    assert Path("solver_iter_2.caffemodel").exists()
    m.fit(2, snapshot=1)
    assert sorted(p.name for p in Path().glob("digits*.caffemodel")) == [
        "digits_iter_3.caffemodel",
        "digits_iter_4.caffemodel",
    ]


def test_files_that_cannot_be_written(rng: np.random.Generator) -> None:
    m = M.Model()
    x = m.data(rng.normal(size=(4, 2)), 2)
    m.minimize(m.reduction(x), base_lr=1)
    with pytest.raises(caffe.CaffeError, match="cannot write nowhere"):
        m.save("nowhere/net.prototxt")


def test_nets_that_were_asked_for_before_change_nothing() -> None:
    m, other = digits(), digits()
    m.net("deploy")
    m.run(m.tops["score"])
    assert m.parameters["conv1/weight"].shape == (8, 1, 3, 3)
    m.fit(7)
    other.fit(7)
    for name, p in other.parameters.items():
        np.testing.assert_array_equal(p.data, m.parameters[name].data)


def test_a_loop_of_ones_own_gives_the_same() -> None:
    m, other = digits(), digits()
    m.fit(6)
    net, solver = other.net("train"), other.minimizer
    losses = []
    for _ in range(6):
        net.zero_grad()
        loss = net()
        loss.backward()
        solver.step()
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    for name, p in other.parameters.items():
        np.testing.assert_array_equal(p.data, m.parameters[name].data)


def test_a_resumed_training_ends_in_the_same_bits(rng: np.random.Generator) -> None:
    images, labels = rng.normal(size=(37, 4)).astype(np.float32), rng.integers(0, 3, 37)

    class Items:
        def __len__(self) -> int:
            return 37

        def __getitem__(self, i: int) -> tuple[np.ndarray, int]:
            return images[i], labels[i]

    def batches():
        for i in range(0, 36, 6):
            yield images[i : i + 6], labels[i : i + 6]

    sources = {
        "arrays": ((images, labels), {"batch_size": 8, "shuffle": True}),
        "items": (Items(), {"batch_size": 8, "shuffle": True, "threads": 3}),
        "batches": (batches, {}),
    }
    for kind, (source, options) in sources.items():

        def make(source=source, options=options) -> M.Model:
            with M.Model("r", seed=2) as m:
                x, y = m.data(source, **options)
                m.minimize(
                    m.softmax_loss(m.fc(m.dropout(m.fc(x, 9)), 3), y), "SGD", base_lr=0.1, momentum=0.9
                )
            return m

        whole = make()
        whole.fit(20)
        first = make()
        first.fit(9, snapshot_prefix=kind)
        second = make()
        second.fit(20, resume=f"{kind}_iter_9.solverstate")
        assert second.minimizer.iter == 20
        for name, p in whole.parameters.items():
            np.testing.assert_array_equal(p.data, second.parameters[name].data, err_msg=kind)
