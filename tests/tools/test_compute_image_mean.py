"""compute_image_mean: the recorded means, naive sums, and databases that have none."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

import golden_vectors as golden
from caffe.data_transformer import read_mean
from caffe.db import open_db
from caffe.proto.caffe_pb2 import Datum

DATA = golden.GOLDEN / "data"


def write(images: list[np.ndarray], kind: str = "raw", path: str = "db", backend: str = "lmdb") -> None:
    """A database of images (C, H, W)."""
    with open_db(path, backend, "new") as db:
        transaction = db.transaction()
        for i, image in enumerate(images):
            c, h, w = image.shape
            datum = Datum(label=i)
            if kind == "encoded":
                datum.encoded = True
                datum.data = cv2.imencode(".png", image.transpose(1, 2, 0))[1].tobytes()
            else:
                datum.channels, datum.height, datum.width = c, h, w
                if kind == "raw":
                    datum.data = image.tobytes()
                else:
                    datum.float_data.extend(image.ravel().tolist())
            transaction.put(b"%05d" % i, datum.SerializeToString())
        transaction.commit()


def means(text: str) -> list[tuple[int, float]]:
    return [(int(c), float(v)) for c, v in re.findall(r"mean_value channel \[(\d+)\]: ([\d.e+-]+)", text)]


@pytest.mark.parametrize("log", sorted(DATA.glob("mean_*.log")), ids=lambda p: p.stem)
def test_means_are_those_of_the_original(cli, log: Path) -> None:
    shutil.copytree(DATA / "db", "db")
    text = log.read_text()
    argv = text.splitlines()[0].split()[2:-1]
    done = cli(*argv, "mine.binaryproto", tool="compute_image_mean")
    assert done.status == 0
    # Another JPEG decoder or resizer may differ by a few grey levels.
    slack = 3 if "encoded" in log.stem else 1e-3
    np.testing.assert_allclose(
        read_mean("mine.binaryproto"), read_mean(str(log.with_suffix(".binaryproto"))), rtol=0, atol=slack
    )
    ours, wanted = means(done.err), means(text)
    assert [c for c, _ in ours] == [c for c, _ in wanted]
    np.testing.assert_allclose([v for _, v in ours], [v for _, v in wanted], rtol=0, atol=2e-3 + slack)
    said = [line.split("] ", 1)[1] for line in text.splitlines()[1:] if "mean_value" not in line]
    heard = [line.split("] ", 1)[1].replace("mine", "out") for line in done.err.splitlines() if "] " in line]
    assert [line for line in heard if "mean_value" not in line] == said


@pytest.mark.parametrize("kind", ["raw", "encoded", "floats"])
def test_the_mean_of_many(cli, rng: np.random.Generator, kind: str) -> None:
    images = [rng.integers(0, 256, (3, 4, 5)).astype(np.uint8) for _ in range(300)]
    if kind == "floats":
        images = [image / np.float32(7) - 5 for image in images]
    write(images, kind)
    assert cli("db", "mean", tool="compute_image_mean").status == 0
    wanted = np.mean(np.array(images, np.float64), axis=0)
    np.testing.assert_allclose(read_mean("mean"), wanted, rtol=1e-6, atol=1e-5)


def test_without_an_output_file_it_is_printed(cli, rng: np.random.Generator) -> None:
    write([np.full((2, 1, 1), v, np.uint8) for v in (3, 4)], backend="leveldb")
    done = cli("db", tool="compute_image_mean")  # the backend is found out
    assert done.status == 0
    assert means(done.err) == [(0, 3.5), (1, 3.5)]
    assert os.listdir() == ["db"]


def test_an_embedded_data_set(cli) -> None:
    done = cli("dataset://digits/test", tool="compute_image_mean")
    assert "Processed 297 files." in done.err


def test_wrong_calls(cli, rng: np.random.Generator) -> None:
    write([np.zeros((1, 2, 2), np.uint8), np.zeros((1, 2, 3), np.uint8)])
    write([], path="empty")
    for argv, status, message in (
        ([], 2, "Missing argument 'INPUT_DB'"),
        (["none"], 1, "LMDB 'none': No such file"),
        (["-backend", "leveldb", "db"], 1, "this is an LMDB"),
        (["empty"], 1, "LMDB 'empty' has no records, so there is no mean"),
        (["db", "none/mean"], 1, "cannot write 'none/mean': No such file"),
        (["db", "mean"], 1, "record '00001': Incorrect data field size 6"),
    ):
        done = cli(*argv, tool="compute_image_mean")
        assert done.status == status
        assert message in done.error
    assert sorted(os.listdir()) == ["db", "empty"]


def test_a_mean_that_is_there_stays_when_the_new_one_fails(cli) -> None:
    write([np.zeros((1, 2, 2), np.uint8), np.zeros((1, 2, 3), np.uint8)])
    Path("mean").write_text("precious")
    assert cli("db", "mean", tool="compute_image_mean").status == 1
    assert Path("mean").read_text() == "precious"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"\xff\xff", "record '00002': this is no Datum"),
        (Datum(encoded=True, data=b"text").SerializeToString(), "record '00002': Could not decode datum"),
        (
            Datum(encoded=True, data=cv2.imencode(".png", np.zeros((2, 2), np.uint16))[1].tobytes()),
            "record '00002': Image data type must be unsigned byte",
        ),
    ],
)
def test_a_damaged_record_is_named(cli, value: bytes | Datum, message: str) -> None:
    for kind in ("raw", "encoded"):
        write([np.zeros((1, 2, 2), np.uint8)] * 2, kind, path=kind)
        with open_db(kind, "lmdb", "write") as db:
            transaction = db.transaction()
            transaction.put(b"00002", value if isinstance(value, bytes) else value.SerializeToString())
            transaction.commit()
        done = cli(kind, tool="compute_image_mean")
        assert done.status == 1
        assert message in done.error
