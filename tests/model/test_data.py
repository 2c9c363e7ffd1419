"""m.data: what comes out of each kind of source, in which order."""

from __future__ import annotations

import threading
from pathlib import Path

import h5py
import numpy as np
import pytest

import caffe
from caffe import model as M
from caffe.errors import DataError


def batches(m: M.Model, tops: list[M.Top], count: int, phase: str = "train") -> list[list[np.ndarray]]:
    net = m.net(phase, outputs=tops)
    result = []
    for _ in range(count):
        out = net()
        result.append([np.array(o) for o in (out if isinstance(out, tuple) else (out,))])
    return result


def test_arrays_in_order_and_around() -> None:
    m = M.Model()
    x, y = m.data((np.arange(5.0)[:, None], np.arange(5)), batch_size=2)
    assert (x.name, y.name, x.shape, y.shape) == ("data", "label", (2, 1), (2,))
    found = [b[1].tolist() for b in batches(m, [x, y], 4)]
    assert found == [[0, 1], [2, 3], [4, 0], [1, 2]]


def test_shuffled_epochs_hold_each_row_once() -> None:
    def rows(seed: int) -> list[float]:
        m = M.Model(seed=seed)
        x = m.data(np.arange(6.0), batch_size=3, shuffle=True)
        return [v for (b,) in batches(m, [x], 6) for v in b.tolist()]

    found = rows(1)
    epochs = [found[i : i + 6] for i in (0, 6, 12)]
    assert all(sorted(e) == list(range(6)) for e in epochs)
    assert epochs[0] != epochs[1] and found == rows(1) != rows(2)


def test_names_scale_and_mean() -> None:
    m = M.Model()
    left, right = m.data({"left": np.full((4, 2), 7), "right": np.zeros((4, 1))}, 2, scale=0.5, mean=3)
    assert (m.layers[0].tops[0].name, right.name) == ("left", "right")
    ((a, b),) = batches(m, [left, right], 1)
    assert a.tolist() == [[2, 2], [2, 2]] and not b.any()


@pytest.mark.parametrize("threads", [1, 4])
def test_data_sets_with_threads_and_collate(threads: int) -> None:
    seen: set[str] = set()

    class Squares:
        def __len__(self) -> int:
            return 7

        def __getitem__(self, i: int) -> dict[str, float]:
            seen.add(threading.current_thread().name)
            return {"n": i, "square": i * i}

    def collate(items: list[dict[str, float]]) -> tuple[np.ndarray, np.ndarray]:
        return np.array([[d["n"]] for d in items]), np.array([d["square"] for d in items])

    m = M.Model(seed=3)
    n, square = m.data(Squares(), 3, shuffle=True, threads=threads, collate=collate)
    found = batches(m, [n, square], 7)
    rows = np.concatenate([b[0].ravel() for b in found])
    assert sorted(rows[:7]) == sorted(rows[7:14]) == list(range(7))
    for a, b in found:
        np.testing.assert_array_equal(a.ravel() ** 2, b)
    # The same rows as arrays, and as one thread, give.
    same = M.Model(seed=3)
    x = same.data(np.arange(7.0)[:, None], 3, shuffle=True)
    np.testing.assert_array_equal(rows, np.concatenate([b[0].ravel() for b in batches(same, [x], 7)]))


def test_a_fault_in_an_item_is_raised_with_its_cause() -> None:
    class Broken:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, i: int) -> float:
            if i == 2:
                raise KeyError("item 2")
            return float(i)

    m = M.Model()
    x = m.data(Broken(), 1)
    with pytest.raises(DataError, match=r"layer 'data' \(Feed, test_data\.py:\d+\).*KeyError\('item 2'\)"):
        batches(m, [x], 4)


def test_iterables_begin_again_and_may_change_size() -> None:
    m = M.Model()
    x = m.data([np.ones((2, 3)), np.zeros((1, 3))])
    y = m.fc(x, 1)
    shapes = [b[0].shape for b in batches(m, [y], 4)]
    assert shapes == [(2, 1), (1, 1), (2, 1), (1, 1)]


def test_an_iterator_is_read_once() -> None:
    m = M.Model()
    x = m.data(iter([np.ones((1, 1)), np.zeros((1, 1))]))
    net = m.net("train", x)
    assert float(net()) == 1 and float(net()) == 0
    with pytest.raises(DataError, match="give a function that returns a new iterator"):
        net()


def test_hdf5_files() -> None:
    with h5py.File("some.h5", "w") as file:
        file["data"], file["label"] = np.arange(8.0).reshape(4, 2), np.arange(4)
    Path("list.txt").write_text("some.h5\n")
    for source in ("some.h5", Path("list.txt")):
        m = M.Model()
        x, y = m.data(source, batch_size=2)
        found = batches(m, [x, y], 2)
        assert found[1][0].tolist() == [[4, 5], [6, 7]] and found[1][1].tolist() == [2, 3]


def test_data_for_testing() -> None:
    m = M.Model()
    train, test = np.zeros((8, 1)), np.ones((6, 1))
    x = m.data(train, 4, test=test, test_batch_size=2)
    assert not batches(m, [x], 1)[0][0].any()
    assert batches(m, [x], 1, "test")[0][0].tolist() == [[1], [1]]
    assert m.count_test_batches() == 3


def test_databases_are_transformed_by_their_layer() -> None:
    m = M.Model()
    m.data("dataset://digits/train", 10, scale=0.5, mean=3, mirror=True, crop_size=6)
    layer = m.to_proto().layer[0]
    assert layer.type == "Data" and layer.transform_param.mirror and layer.transform_param.crop_size == 6
    assert (layer.transform_param.scale, list(layer.transform_param.mean_value)) == (0.5, [3])
    assert m.layers[0].tops[0].shape == (10, 1, 6, 6)
    assert m.count_test_batches() == 150


def test_faults() -> None:
    m = M.Model()
    with pytest.raises(DataError, match="same number of rows.*data \\(3, 1\\), label \\(2,\\)"):
        m.data((np.zeros((3, 1)), np.zeros(2)), 1)
    with pytest.raises(M.ModelError, match="batch_size must be an integer of 1 or more, not 0"):
        m.data(np.zeros(3))
    with pytest.raises(DataError, match="'nowhere' does not exist"):
        m.data("nowhere", 1)
    with pytest.raises(M.ModelError, match="crop_size, mirror and a mean per channel are for databases"):
        m.data(np.zeros(3), 1, mirror=True)
    with pytest.raises(M.ModelError, match="shuffle is not for databases"):
        m.data("dataset://digits/train", 1, shuffle=True)
    with pytest.raises(M.ModelError, match="the test source gives 1 tops, the training's 2"):
        m.data((np.zeros(3), np.zeros(3)), 1, test=np.zeros(3))
    with pytest.raises(DataError, match="numbers"):
        m.data(np.array(["a"]), 1)


def test_other_programs_are_told_what_they_lack() -> None:
    m = M.Model()
    x = m.data([np.ones((1, 1))])
    m.minimize(m.reduction(x), base_lr=1)
    with pytest.raises(M.ModelError, match="reads a data set or an iterator of this program"):
        m.save("net.prototxt")
    net = m.to_proto()
    net.layer[0].python_param.param_str = "feed of yesterday"
    with pytest.raises(DataError, match=r"m\.save\(\) writes arrays into files for other programs"):
        caffe.Net(net, caffe.TRAIN)


def test_threads_end_with_the_net() -> None:
    import gc

    class Items:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, i: int) -> float:
            return float(i)

    before = set(threading.enumerate())
    m = M.Model()
    net = m.net("train", m.data(Items(), 1))
    net()
    readers = set(threading.enumerate()) - before
    assert readers
    del net
    gc.collect()
    assert not readers & set(threading.enumerate())


def test_batches_of_dicts_are_read_by_name() -> None:
    first, second = {"x": np.ones((2, 3)), "y": np.zeros(2)}, {"y": np.ones(2), "x": np.full((2, 3), 2)}
    m = M.Model()
    x, y = m.data([first, second])
    found = batches(m, [x, y], 2)
    assert found[1][0].tolist() == [[2, 2, 2]] * 2 and found[1][1].tolist() == [1, 1]
    m = M.Model()
    x, y = m.data([first, {"x": np.ones((2, 3)), "z": np.zeros(2)}])
    with pytest.raises(DataError, match=r"test_data.*a batch has the arrays \['x', 'z'\], the first had"):
        batches(m, [x, y], 2)


def test_tuples_of_lists_are_arrays() -> None:
    m = M.Model()
    x, y = m.data(([[1, 2], [3, 4]], [0, 1]), 2)
    ((a, b),) = batches(m, [x, y], 1)
    assert a.tolist() == [[1, 2], [3, 4]] and b.tolist() == [0, 1]
    with pytest.raises(DataError, match="rows of different lengths"):
        m.data(([[1, 2], [3]], [0, 1]), 2)


class Items:
    """Ten items, of which `fault` is asked for number 7."""

    def __init__(self, fault):
        self.fault = fault

    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int):
        return self.fault() if i == 7 else (np.zeros(2), 1)


def _raise(error: BaseException):
    raise error


@pytest.mark.parametrize(
    ("fault", "about"),
    [
        (lambda: _raise(ValueError("torn")), "torn"),
        (lambda: _raise(SystemExit(3)), "SystemExit"),
        (lambda: _raise(StopIteration()), "StopIteration"),
        (lambda: (np.zeros(2),), "shorter|2 arrays|1 arrays"),
        (lambda: (np.zeros(3), 1), "same shape"),
        (lambda: (np.zeros(2), "one"), "numbers"),
    ],
)
@pytest.mark.parametrize("threads", [1, 3])
def test_items_that_fail_later(fault, about: str, threads: int) -> None:
    m = M.Model()
    tops = m.data(Items(fault), 2, threads=threads)
    with pytest.raises(DataError, match=rf"layer 'data' \(Feed, test_data\.py:\d+\).*({about})"):
        batches(m, list(tops), 5)


def test_iterators_that_fail_later() -> None:
    def broken():
        yield np.ones((1, 1))
        raise RuntimeError("the disk is gone")

    begun = iter([iter([np.ones(1)]), iter([])])
    for source, about in [
        (broken, "RuntimeError.*the disk is gone"),
        (lambda: iter([np.ones(1), (np.ones(1), np.ones(1))]), "a batch has 2 arrays, the first had 1"),
        (lambda: iter([np.ones(1), "text"]), "arrays of numbers"),
        (lambda: next(begun, iter([])), "gives no batch"),
    ]:
        m = M.Model()
        x = m.data(source)
        with pytest.raises(DataError, match=rf"layer 'data' \(Feed, test_data\.py:\d+\).*{about}"):
            batches(m, [x], 3)


def test_a_batch_that_failed_does_not_end_the_training() -> None:
    """The next batch is read as if nothing had been."""
    m = M.Model()
    x = m.data([np.ones((2, 3)), np.ones((2, 4)), np.full((2, 3), 3)])
    net = m.net("train", m.fc(x, 1))
    net()
    with pytest.raises(caffe.CaffeError, match="4 from axis 1 on"):
        net()
    net()
    assert net.blob(x).data.tolist() == [[3, 3, 3]] * 2


def test_options_that_a_source_has_not_are_refused() -> None:
    m = M.Model()
    arrays, items = (np.zeros((4, 2)), np.zeros(4)), Items(lambda: (np.zeros(2), 1))
    for source, options, about in [
        ([arrays], {"batch_size": 2}, "batch_size is not for iterables"),
        (arrays, {"batch_size": 2, "test": [arrays], "test_batch_size": 2}, "test_batch_size is not for"),
        (arrays, {"batch_size": 2, "threads": 3}, "threads and collate are for data sets"),
        (arrays, {"batch_size": 2, "collate": np.stack}, "threads and collate are for data sets"),
        (items, {"batch_size": 2, "threads": 0}, "threads must be an integer of 1 or more"),
        (items, {"batch_size": 2.5}, "batch_size must be an integer"),
        (arrays, {"batch_size": 2, "tops": ["x"]}, r"2 arrays need as many names, not tops=\['x'\]"),
        (arrays, {"batch_size": 2, "tops": "xy"}, "tops takes a list"),
        (arrays, {"batch_size": 2, "scale": "big"}, "scale and mean must be numbers"),
        (b"abc", {"batch_size": 2}, "a source cannot be bytes"),
        (3, {"batch_size": 2}, "a source cannot be int"),
    ]:
        with pytest.raises(M.ModelError, match=about):
            m.data(source, **options)
    with pytest.raises(DataError, match="unknown data set 'dataset://digit/train'"):
        m.data("dataset://digit/train", 2)
    assert not m.layers


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("kind", ["arrays", "items"])
def test_ranks_share_the_rows(kind: str, shuffle: bool) -> None:
    """As HDF5Data layers do: rank r of R takes rows r, r + R ... of one common order."""
    numbers = np.arange(7.0)

    def rows(batches: int) -> list[float]:
        m = M.Model(seed=5)
        source = numbers if kind == "arrays" else [*map(float, numbers)]
        x = m.data(source if kind == "arrays" else Numbers(source), 3, shuffle=shuffle)
        m.minimize({m.reduction(x): 1.0}, base_lr=0.0)
        net, found = m.minimizer.solver.net, []
        for _ in range(batches):
            net.run_forward()
            found += net.blobs["data"].data.tolist()
        return found

    whole = rows(8)
    try:
        caffe.set_solver_count(2)
        for rank in (0, 1):
            caffe.set_solver_rank(rank)
            assert rows(4) == whole[rank::2]
    finally:
        caffe.set_solver_count(1)
        caffe.set_solver_rank(0)


class Numbers:
    """A data set of numbers."""

    def __init__(self, numbers: list[float]):
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, i: int) -> float:
        return self.numbers[i]
