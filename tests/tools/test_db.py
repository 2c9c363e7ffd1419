"""caffe db: what it says of databases that are well, and of others."""

from __future__ import annotations

import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

import golden_vectors as golden
from caffe.db import open_db
from caffe.proto.caffe_pb2 import Datum

DATA = golden.GOLDEN / "data" / "db"


def write(path: str, values: dict[str, bytes | Datum], backend: str = "lmdb") -> None:
    with open_db(path, backend, "new") as db:
        transaction = db.transaction()
        for key, value in values.items():
            transaction.put(key.encode(), value if isinstance(value, bytes) else value.SerializeToString())
        transaction.commit()


def raw(image: np.ndarray, label: int) -> Datum:
    c, h, w = image.shape
    return Datum(channels=c, height=h, width=w, label=label, data=image.tobytes())


@pytest.fixture
def pictures(rng: np.random.Generator) -> list[np.ndarray]:
    """The LMDB db, of ten images, of which the label 7 has four."""
    images = [rng.integers(0, 256, (3, 6, 4), dtype=np.uint8) for _ in range(10)]
    write("db", {f"{i:03d}": raw(image, min(i, 7) - 1) for i, image in enumerate(images)})
    return images


def test_info(cli, pictures: object) -> None:
    done = cli("db", "info", "db")
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("db: LMDB, 10 records, ")
    assert lines[0].endswith("KiB on disk")
    assert lines[1:4] == [
        "keys    000 … 009",
        "images  10 x (3 x 6 x 4) bytes",
        "labels  8 different, -1 … 6",
    ]
    bars = [line.split() for line in lines[4:]]
    assert [(int(label), int(count), len(bar)) for label, count, bar in bars] == [
        (label, 3 if label == 6 else 1, 40 if label == 6 else 13) for label in range(-1, 7)
    ]


def test_info_of_the_first_records_only(cli, pictures: object) -> None:
    lines = cli("db", "info", "-limit", "3", "db").out.splitlines()
    assert lines[0].startswith("db: LMDB, 10 records")
    assert lines[1:4] == ["of the first 3:", "keys    000 … 002", "images  3 x (3 x 6 x 4) bytes"]
    assert lines[4] == "labels  3 different, -1 … 1, 1 of each"


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("many_leveldb_table", ["LevelDB, 60 records", "60 x (3 x 11 x 14) bytes"]),
        ("encoded_lmdb", ["2 x (3 x 11 x 14) as JPEG", "4 x (3 x 11 x 14) as PNG"]),
        ("odd_encoded", ["1 x (1 x 11 x 14) as PNG of 16 bits", "1 x (4 x 11 x 14) as PNG", "as BMP"]),
        ("mixed_no_check", ["1 x (3 x 11 x 19) bytes", "1 x (3 x 14 x 18) bytes"]),
    ],
)
def test_info_of_the_originals_databases(cli, name: str, lines: list[str]) -> None:
    done = cli("db", "info", DATA / name)
    assert done.status == 0
    for line in lines:
        assert line in done.out
    assert cli("db", "verify", DATA / name).out.endswith("records are well\n")


def test_many_labels_and_kinds_are_cut_short(cli) -> None:
    write("db", {f"{i:03d}": raw(np.zeros((1, 1, 1 + i // 2), np.uint8), i // 2 * 5) for i in range(99)})
    done = cli("db", "info", "db")
    assert "images  and 40 other kinds" in done.out
    assert "labels  50 different, 0 … 245" in done.out
    assert "  and 30 other labels" in done.out


def test_floats_and_an_embedded_data_set(cli) -> None:
    write("db", {"0": Datum(channels=1, height=1, width=2, float_data=[1.5, -2])})
    assert "1 x (1 x 1 x 2) floats" in cli("db", "info", "db").out
    assert "1,500 records" in cli("db", "info", "dataset://digits/train").out


def test_head(cli, pictures: object) -> None:
    lines = cli("db", "head", "-n", "2", "db").out.splitlines()
    assert lines == [
        "000      -1        91 bytes  (3 x 6 x 4) bytes",
        "001       0        82 bytes  (3 x 6 x 4) bytes",
    ]
    assert len(cli("db", "head", "db").out.splitlines()) == 10


def test_the_contact_sheet_shows_the_images_in_their_order(cli, pictures: list[np.ndarray]) -> None:
    done = cli("db", "head", "-n", "3", "-o", "sheet.png", "db")
    assert done.out.splitlines()[-1] == "Wrote 3 images to sheet.png"
    sheet = cv2.imread("sheet.png")
    # Each pixel is a square of eight by eight; two columns, two rows.
    large = [image.transpose(1, 2, 0).repeat(8, axis=0).repeat(8, axis=1) for image in pictures[:3]]
    places = []
    for picture in large:
        match = cv2.matchTemplate(sheet, picture, cv2.TM_SQDIFF)
        row, column = np.unravel_index(match.argmin(), match.shape)
        np.testing.assert_array_equal(sheet[row : row + 48, column : column + 32], picture)
        places.append((row, column))
    (top, left), (top2, right), (bottom, left2) = places
    assert (top2, left2) == (top, left)
    assert right > left
    assert bottom > top
    background = sheet.copy()
    for row, column in places:
        background[row : row + 48, column : column + 32] = 255
    assert (background < 128).any()  # the labels


def test_contact_sheets_of_other_images(cli, rng: np.random.Generator) -> None:
    wide = rng.integers(0, 256, (1, 100, 500), dtype=np.uint8)
    pair = rng.integers(0, 256, (2, 3, 3), dtype=np.uint8)
    floats = Datum(channels=3, height=1, width=2, float_data=[0, 1, 2, 3, 4, float("nan")])
    red = np.zeros((3, 2, 2), np.uint8)
    red[0] = 255
    write("db", {"0": raw(wide, 1), "1": raw(pair, 2), "2": floats, "3": raw(red, 3), "4": b"\xff"})
    assert "Wrote 4 images" in cli("db", "head", "-o", "s.png", "-rgb", "db").out
    sheet = cv2.imread("s.png")
    assert sheet.shape[1] < 300
    assert (sheet == (0, 0, 255)).all(axis=2).sum() == 16 * 16  # as red as it was meant
    done = cli("db", "head", "-o", "s.png", "db")
    assert done.status == 1
    assert "s.png exists already" in done.error
    assert cli("db", "head", "-o", "s.png", "--force", "db").status == 0
    assert (cv2.imread("s.png") == (255, 0, 0)).all(axis=2).sum() == 16 * 16


def test_verify_names_what_is_damaged(cli, pictures: object) -> None:
    good = cv2.imencode(".png", np.zeros((4, 4), np.uint8))[1].tobytes()
    with open_db("db", "lmdb", "write") as db:
        transaction = db.transaction()
        transaction.put(b"004", b"\xff\xff")
        transaction.put(b"006", Datum(encoded=True, data=good[:30]).SerializeToString())
        transaction.put(b"007", Datum(channels=3, height=2, width=2, data=b"1").SerializeToString())
        transaction.commit()
    done = cli("db", "verify", "db")
    assert done.status == 1
    assert [line.partition(":")[0] for line in done.out.splitlines()] == ["004", "006", "007"]
    assert "db: 3 of 10 records are damaged" in done.error
    assert "faults  3 of 10 cannot be read: caffe db verify db names them" in cli("db", "info", "db").out
    assert "004       ?" in cli("db", "head", "db").out


def test_verify_of_a_damaged_file(cli, pictures: object) -> None:
    shutil.copytree(DATA / "overflow_lmdb", "big")
    data = Path("big/data.mdb").read_bytes()
    Path("big/data.mdb").write_bytes(data[:-4096])
    done = cli("db", "verify", "big")
    assert done.status == 1
    assert "truncated or damaged" in done.error


def test_wrong_calls(cli) -> None:
    write("empty", {})
    for argv, status, message in (
        (["info", "none"], 1, "LMDB 'none': No such file"),
        (["head", "empty"], 1, "empty has no records"),
        (["head", "-n", "0", "empty"], 2, "-n must be at least 1"),
        (["heed", "empty"], 2, "did you mean 'head'? (known: info, head, verify)"),
        (["info"], 2, "Missing argument 'DB'"),
        (["info", "dataset://digitz/train"], 1, "unknown data set"),
    ):
        done = cli("db", *argv)
        assert done.status == status
        assert message in done.error
    assert "LMDB, 0 records" in cli("db", "info", "empty").out
    assert "all 0 records are well" in cli("db", "verify", "empty").out
