"""extract_features: the recorded features, other shapes, and one epoch too many."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

import caffe
import golden_vectors as golden
from caffe.db import open_db
from caffe.proto.caffe_pb2 import Datum

DATA = golden.GOLDEN / "data"


def records(path: str, backend: str = "lmdb") -> dict[str, np.ndarray]:
    found = {}
    with open_db(path, backend) as db:
        cursor = db.cursor()
        while cursor.valid():
            datum = Datum.FromString(cursor.value())
            assert not (datum.data or datum.encoded or datum.HasField("label"))
            shape = (datum.channels, datum.height, datum.width)
            found[cursor.key().decode()] = np.array(datum.float_data, np.float32).reshape(shape)
            cursor.next()
    return found


@pytest.fixture
def features() -> str:
    """The recorded net's folder, where its database can be found; "WEIGHTS MODEL"."""
    shutil.copytree(DATA / "db", "db")
    shutil.copytree(DATA / "features", "features")
    return "features/net.caffemodel features/net.prototxt"


@pytest.mark.parametrize("backend", ["lmdb", "leveldb"])
def test_features_are_those_of_the_original(cli, features: str, backend: str) -> None:
    done = cli(
        *features.split(), "conv,ip", "out/conv,out/ip", "3", backend, "CPU", "0", tool="extract_features"
    )
    assert done.status == 0
    with np.load("features/features.npz") as archive:
        for blob in ("conv", "ip"):
            found = records(f"out/{blob}", backend)
            assert list(found) == [f"{i:010d}" for i in range(12)]
            for i, values in enumerate(found.values()):
                np.testing.assert_allclose(values, archive[f"{blob}_{backend}_{i}"], rtol=0, atol=1e-4)
            assert f"Extracted features of 12 query images for feature blob {blob}" in done.err
    assert "Successfully extracted the features!" in done.err


@pytest.mark.parametrize("source", ["raw_lmdb", "raw_leveldb"])
def test_more_than_one_epoch_is_told_once(cli, features: str, source: str) -> None:
    """Six records in batches of four."""
    if source == "raw_leveldb":
        model = Path("features/net.prototxt")
        model.write_text(model.read_text().replace("raw_lmdb", "raw_leveldb").replace("LMDB", "LEVELDB"))
    done = cli(*features.split(), "ip", "a", "1", "lmdb", tool="extract_features")
    assert "anew" not in done.err
    done = cli(*features.split(), "ip", "b", "5", "lmdb", tool="extract_features")
    assert done.status == 0
    assert done.err.count("has begun its data anew") == 1
    assert "In batch 2, layer 'd' (Data) has begun its data anew" in done.err


def test_hdf5_data_and_other_shapes(cli) -> None:
    with h5py.File("x.h5", "w") as file:
        file["x"] = np.arange(4 * 2 * 3 * 2 * 5, dtype=np.float32).reshape(4, 2, 3, 2, 5)
    Path("list.txt").write_text("x.h5\n")
    Path("net.prototxt").write_text(
        """layer { name: "d" type: "HDF5Data" top: "x" hdf5_data_param { source: "list.txt" batch_size: 2 } }
           layer { name: "r" type: "Reduction" bottom: "x" top: "sum" }
           layer { name: "n" type: "Reduction" bottom: "x" top: "sums" reduction_param { axis: 1 } }"""
    )
    caffe.Net("net.prototxt", caffe.TEST).save("net.caffemodel")
    done = cli("net.caffemodel", "net.prototxt", "x,sum,sums", "a,b,c", "3", "lmdb", tool="extract_features")
    assert done.status == 0
    assert "In batch 3, layer 'd' (HDF5Data) has begun its data anew" in done.err
    x = np.arange(240, dtype=np.float32).reshape(4, 2, 3, 10)
    found = np.array(list(records("a").values()))
    np.testing.assert_array_equal(found, x[[0, 1, 2, 3, 0, 1]])
    np.testing.assert_allclose(np.ravel(list(records("b").values())), [x[:2].sum(), x[2:].sum(), x[:2].sum()])
    assert [v.shape for v in records("c").values()] == [(1, 1, 1)] * 6


def test_databases_are_replaced_by_force_alone(cli, features: str) -> None:
    call = [*features.split(), "conv,ip", "a,b", "1", "lmdb"]
    assert cli(*call, tool="extract_features").status == 0
    shutil.rmtree("a")
    done = cli(*call, tool="extract_features")
    assert done.status == 1
    assert "mkdir b failed: it exists already" in done.error
    assert not os.path.exists("a")
    call[4] = "2"
    assert cli(*call, "--force", tool="extract_features").status == 0
    assert len(records("a")) == len(records("b")) == 8


def test_a_fault_on_the_way_leaves_no_database(cli, features: str) -> None:
    os.truncate("db/raw_lmdb/data.mdb", 8192)
    before = sorted(os.listdir())
    assert cli(*features.split(), "conv,ip", "a,b", "3", "lmdb", tool="extract_features").status == 1
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["conv", "a", "1"], 2, "Missing argument 'DB_TYPE'"),
        (
            ["conv,ip", "a", "1", "lmdb"],
            2,
            "the number of blob names and dataset names must be equal: 2 blobs, 1",
        ),
        (["conv,ip", "a,a", "1", "lmdb"], 2, "each blob needs a database of its own"),
        (["conv,ip", "a,./a/", "1", "lmdb"], 2, "each blob needs a database of its own"),
        (["conv", "a", "0", "lmdb"], 2, "Invalid value for 'BATCHES'"),
        (["conv", "a", "x", "lmdb"], 2, "Invalid value for 'BATCHES'"),
        (["conv", "a", "1", "lmdb", "TPU"], 2, "'TPU' is not one of 'CPU', 'GPU'"),
        (
            ["conf", "a", "1", "lmdb"],
            1,
            "Unknown feature blob name conf in the network .* did you mean 'conv'",
        ),
        (["conv", "a", "1", "mdb"], 1, "Unknown database backend 'mdb'; known: lmdb, leveldb"),
    ],
)
def test_wrong_calls(cli, features: str, words: list[str], status: int, message: str) -> None:
    done = cli(*features.split(), *words, tool="extract_features")
    assert done.status == status
    for part in message.split(" .* "):
        assert part in done.error
    assert not os.path.exists("a")
