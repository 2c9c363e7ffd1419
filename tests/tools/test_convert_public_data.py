"""convert_mnist_data, convert_mnist_siamese_data, convert_cifar_data: from files of the public formats."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest

from caffe.db import open_db
from caffe.proto.caffe_pb2 import Datum
from caffe_tools import cifar


def records(path: str, backend: str) -> dict[str, Datum]:
    found = {}
    with open_db(path, backend) as db:
        cursor = db.cursor()
        while cursor.valid():
            found[cursor.key().decode()] = Datum.FromString(cursor.value())
            cursor.next()
    return found


def idx(array: np.ndarray) -> bytes:
    """An idx file by its description: 0, 0, 8 for uint8, number of axes, axes, data."""
    head = bytes([0, 0, 8, array.ndim])
    return head + b"".join(struct.pack(">I", n) for n in array.shape) + array.tobytes()


@pytest.fixture
def digits(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The files images and labels, of 30 digits of 6 x 5 pixels."""
    images = rng.integers(256, size=(30, 6, 5), dtype=np.uint8)
    labels = rng.integers(3, size=30, dtype=np.uint8)
    Path("images").write_bytes(idx(images))
    Path("labels").write_bytes(idx(labels))
    return images, labels


@pytest.mark.parametrize("flags", [[], ["-backend", "leveldb"], ["--backend=lmdb"]])
def test_mnist(cli, digits: tuple[np.ndarray, np.ndarray], flags: list[str]) -> None:
    done = cli(*flags, "images", "labels", "db", tool="convert_mnist_data")
    assert done.status == 0
    for line in ("A total of 30 items.", "Rows: 6 Cols: 5", "Processed 30 files."):
        assert line in done.err
    found = records("db", "leveldb" if "leveldb" in flags else "lmdb")
    assert list(found) == [f"{i:08d}" for i in range(30)]
    for datum, image, label in zip(found.values(), *digits, strict=True):
        assert (datum.channels, datum.height, datum.width, datum.label) == (1, 6, 5, label)
        assert datum.data == image.tobytes()
        assert not datum.encoded


def test_siamese_pairs(cli, digits: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = digits
    index = {image.tobytes(): i for i, image in enumerate(images)}
    orders = []
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        done = cli("-seed", seed, "images", "labels", name, tool="convert_mnist_siamese_data")
        assert done.status == 0
        found = records(name, "leveldb")
        assert list(found) == [f"{i:08d}" for i in range(30)]
        pairs = []
        for datum in found.values():
            assert (datum.channels, datum.height, datum.width) == (2, 6, 5)
            i, j = index[datum.data[:30]], index[datum.data[30:]]
            assert datum.label == (labels[i] == labels[j])
            pairs.append((i, j))
        orders.append(pairs)
    assert orders[0] == orders[1] != orders[2]
    assert len(set(orders[0])) > 20
    assert 0 < sum(d.label for d in found.values()) < 30


@pytest.fixture
def pictures(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """CIFAR-10's six files in the folder in, with four images each, and one folder for the output."""
    monkeypatch.setattr(cifar, "PER_FILE", 4)
    Path("in").mkdir()
    rows = rng.integers(256, size=(24, 3073), dtype=np.uint8)
    rows[:, 0] %= 10
    for i, name in enumerate((*cifar.TRAIN_FILES, *cifar.TEST_FILES)):
        Path("in", name).write_bytes(rows[4 * i : 4 * i + 4].tobytes())
    return rows


@pytest.mark.parametrize("backend", ["lmdb", "leveldb"])
def test_cifar(cli, pictures: np.ndarray, backend: str) -> None:
    done = cli("in", "out", backend, tool="convert_cifar_data")
    assert done.status == 0
    assert sorted(os.listdir("out")) == [f"cifar10_test_{backend}", f"cifar10_train_{backend}"]
    for part, rows in (("train", pictures[:20]), ("test", pictures[20:])):
        found = records(f"out/cifar10_{part}_{backend}", backend)
        assert list(found) == [f"{i:05d}" for i in range(len(rows))]
        for datum, row in zip(found.values(), rows, strict=True):
            assert (datum.channels, datum.height, datum.width, datum.label) == (3, 32, 32, row[0])
            assert datum.data == row[1:].tobytes()


def test_what_is_there_is_replaced_by_force_alone(cli, digits: object, pictures: np.ndarray) -> None:
    calls = [
        ("convert_mnist_data", ["images", "labels", "a"]),
        ("convert_mnist_siamese_data", ["images", "labels", "b"]),
        ("convert_cifar_data", ["in", "out", "lmdb"]),
    ]
    for tool, words in calls:
        assert cli(*words, tool=tool).status == 0
        done = cli(*words, tool=tool)
        assert done.status == 1
        assert "it exists already" in done.error
        assert cli("--force", *words, tool=tool).status == 0


def test_a_fault_leaves_nothing(cli, digits: object, pictures: np.ndarray) -> None:
    Path("short").write_bytes(Path("images").read_bytes()[:-1])
    Path("no images").write_bytes(idx(np.zeros((0, 6, 5), np.uint8)))
    Path("no labels").write_bytes(idx(np.zeros(0, np.uint8)))
    Path("in", "test_batch.bin").write_bytes(b"text")
    before = sorted(os.listdir())
    for tool, words, message in (
        ("convert_mnist_data", ["short", "labels", "a"], "it is truncated or damaged"),
        ("convert_mnist_data", ["labels", "images", "a"], "Incorrect image file magic"),
        ("convert_mnist_data", ["none", "labels", "a"], "cannot read none"),
        (
            "convert_mnist_data",
            ["-backend", "foo", "images", "labels", "a"],
            "Unknown database backend 'foo'",
        ),
        ("convert_mnist_siamese_data", ["images", "short", "b"], "Incorrect label file magic"),
        ("convert_mnist_data", ["no images", "no labels", "a/b/c"], "no images: it holds no images"),
        ("convert_mnist_siamese_data", ["images", "no labels", "b"], "no labels: it holds no labels"),
        ("convert_cifar_data", ["in", "out", "lmdb"], "test_batch.bin: 4 bytes"),
        ("convert_cifar_data", ["none", "out", "lmdb"], "cannot read"),
        ("convert_cifar_data", ["in", "out", "foo"], "Unknown database backend 'foo'"),
    ):
        done = cli(*words, tool=tool)
        assert done.status == 1
        assert message in done.error
        assert sorted(os.listdir()) == before, "not even the folders that were made for it"
