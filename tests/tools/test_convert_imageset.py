"""convert_imageset: what the original wrote, and what becomes of images that cannot be read."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import cv2
import numpy as np
import pytest

import golden_vectors as golden
from caffe.db import open_db
from caffe.proto.caffe_pb2 import Datum

DATA = golden.GOLDEN / "data"


def commands() -> list[Path]:
    """Databases that the original's tool wrote, with its command line."""
    found = []
    for path in sorted((DATA / "db").glob("*.npz")):
        with np.load(path) as archive:
            if json.loads(str(archive["meta"]))["command"][0] == "convert_imageset":
                found.append(path)
    return found


def records(path: str, backend: str = "lmdb") -> dict[str, Datum]:
    found = {}
    with open_db(path, backend) as db:
        cursor = db.cursor()
        while cursor.valid():
            found[cursor.key().decode()] = Datum.FromString(cursor.value())
            cursor.next()
    return found


def pixels(datum: Datum) -> np.ndarray:
    return np.frombuffer(datum.data, np.uint8).reshape(datum.channels, datum.height, datum.width)


@pytest.mark.parametrize("path", commands(), ids=lambda p: p.stem)
def test_databases_are_those_of_the_original(cli, path: Path) -> None:
    with np.load(path) as archive:
        recorded = dict(archive)
    meta = json.loads(str(recorded["meta"]))
    for name in ("images", "same.txt", "mixed.txt", "odd.txt", "space.txt", "many.txt"):
        os.symlink(DATA / name, name)
    assert cli(*meta["command"][1:-1], "made", tool="convert_imageset").status == 0
    found = records("made", meta["kind"])
    assert list(found) == [r["key"] for r in meta["records"]]
    for i, (datum, record) in enumerate(zip(found.values(), meta["records"], strict=True)):
        for field in ("label", "encoded", "channels", "height", "width"):
            assert getattr(datum, field) == record[field]
        assert datum.HasField("encoded")
        if record["encoded"]:
            # Files as they are; those encoded anew depend on the encoder's version.
            wanted = Datum.FromString(recorded[f"value_{i}"].tobytes())
            found_image, wanted_image = (
                cv2.imdecode(np.frombuffer(d.data, np.uint8), cv2.IMREAD_UNCHANGED) for d in (datum, wanted)
            )
            assert abs(found_image.astype(int) - wanted_image).max() <= 3
        else:
            # Another JPEG decoder or resizer may differ by a few grey levels.
            assert abs(pixels(datum).astype(int) - recorded[f"array_{i}"]).max() <= 3


@pytest.fixture
def images(rng: np.random.Generator) -> list[np.ndarray]:
    """in/0.png … in/4.png, listed in list.txt with labels 0 … 4."""
    Path("in").mkdir()
    found = [rng.integers(0, 256, (4, 5, 3), dtype=np.uint8) for _ in range(5)]
    for i, image in enumerate(found):
        cv2.imwrite(f"in/{i}.png", image)
    Path("list.txt").write_text("".join(f"{i}.png {i}\n" for i in range(5)))
    return found


def test_unreadable_images_are_skipped_counted_and_named(cli, images: list[np.ndarray]) -> None:
    Path("in/1.png").unlink()
    Path("in/3.png").write_bytes(b"text")
    done = cli("in/", "list.txt", "made", tool="convert_imageset")
    assert done.status == 0
    assert "A total of 5 images." in done.err
    assert "Could not open or find file in/1.png: No such file" in done.err
    assert "Could not load in/3.png: its 4 bytes are no image" in done.err
    assert "Processed 3 files." in done.err
    assert "Skipped 2 of 5 images (could not be opened: 1; could not be decoded: 1)" in done.err
    # Keys are the places in the list.
    assert list(records("made")) == ["00000000_0.png", "00000002_2.png", "00000004_4.png"]


def test_strict_leaves_no_database(cli, images: list[np.ndarray]) -> None:
    Path("in/1.png").unlink()
    done = cli("--strict", "in/", "list.txt", "made", tool="convert_imageset")
    assert done.status == 1
    assert "-strict: 1 of 5 images were skipped, so made was not made" in done.error
    assert sorted(os.listdir()) == ["in", "list.txt"]
    Path("list.txt").write_text("0.png 1\n")
    assert cli("--strict", "in/", "list.txt", "made", tool="convert_imageset").status == 0


@pytest.mark.parametrize("listed", ["", "\n", "none.png 1\nnothing.png 2\n"])
def test_nothing_written_is_a_failure(cli, images: list[np.ndarray], listed: str) -> None:
    Path("list.txt").write_text(listed)
    done = cli("in/", "list.txt", "made", tool="convert_imageset")
    assert done.status == 1
    assert "no image was written" in done.error
    assert not Path("made").exists()


def test_a_root_folder_without_its_slash(cli, images: list[np.ndarray]) -> None:
    done = cli("in", "list.txt", "made", tool="convert_imageset")
    assert done.status == 1
    assert "Could not open or find file in0.png" in done.err
    assert "did you mean in/ ?" in done.error


@pytest.mark.parametrize(
    ("argv", "status", "message"),
    [
        (["in/", "none.txt", "made"], 1, "cannot read the list of images 'none.txt': No such file"),
        (["in/", "list.txt"], 2, "Missing argument 'DB_NAME'"),
        (["in/", "list.txt", "a", "b"], 2, "unexpected extra argument"),
        (["-backend", "foo", "in/", "list.txt", "made"], 1, "Unknown database backend 'foo'; known: lmdb"),
        (["-resize_width", "x", "in/", "list.txt", "made"], 2, "'x' is not a valid integer"),
        (["-grey", "in/", "list.txt", "made"], 2, "unknown command line flag 'grey'; did you mean 'gray'?"),
        (
            ["-encode_type", "wav", "in/", "list.txt", "made"],
            1,
            "in/0.png: OpenCV does not encode images as 'wav'",
        ),
    ],
)
def test_wrong_calls(cli, images: list[np.ndarray], argv: list[str], status: int, message: str) -> None:
    done = cli(*argv, tool="convert_imageset")
    assert done.status == status
    assert message in done.error
    assert not Path("made").exists()


def test_check_size_names_the_first_other_one(cli, images: list[np.ndarray]) -> None:
    cv2.imwrite("in/2.png", np.zeros((4, 6, 3), np.uint8))
    for flags in (["-check_size"], ["-check_size", "-encoded"]):
        done = cli(*flags, "in/", "list.txt", "made", tool="convert_imageset")
        assert done.status == 1
        assert "list.txt:3: Incorrect data field size 72: an image of 6 x 4 pixels" in done.error
        assert not Path("made").exists()
    assert cli("in/", "list.txt", "made", tool="convert_imageset").status == 0


@pytest.mark.parametrize("backend", ["lmdb", "leveldb"])
def test_what_is_there_is_replaced_by_force_alone(cli, images: list[np.ndarray], backend: str) -> None:
    assert cli("in/", "list.txt", "made", tool="convert_imageset").status == 0
    Path("list.txt").write_text("3.png 7\n")
    refused = cli("-backend", backend, "in/", "list.txt", "made", tool="convert_imageset")
    assert refused.status == 1
    assert "mkdir made failed: it exists already" in refused.error
    assert len(records("made")) == 5
    assert cli("-backend", backend, "--force", "in/", "list.txt", "made", tool="convert_imageset").status == 0
    assert list(records("made", backend)) == ["00000000_3.png"]
    assert sorted(os.listdir()) == ["in", "list.txt", "made"]


def test_force_replaces_nothing_but_databases(cli, images: list[np.ndarray]) -> None:
    for path in ("in", "list.txt"):
        done = cli("--force", "in/", "list.txt", path, tool="convert_imageset")
        assert done.status == 1
        assert f"{path} exists already and is no database" in done.error
    assert len(os.listdir("in")) == 5
    # A database that could not be replaced stays.
    shutil.copytree(DATA / "db" / "raw_lmdb", "old")
    Path("list.txt").write_text("none.png 1\n")
    assert cli("--force", "in/", "list.txt", "old", tool="convert_imageset").status == 1
    assert len(records("old")) == 6


def test_shuffled_by_a_seed(cli, images: list[np.ndarray]) -> None:
    orders = []
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        assert cli("-shuffle", "-seed", seed, "in/", "list.txt", name, tool="convert_imageset").status == 0
        found = records(name)
        assert [key[:8] for key in found] == [f"{i:08d}" for i in range(5)]
        for key, datum in found.items():
            assert key[9:] == f"{datum.label}.png"
            np.testing.assert_array_equal(pixels(datum), images[datum.label].transpose(2, 0, 1))
        orders.append([datum.label for datum in found.values()])
    assert orders[0] == orders[1] != orders[2]


def test_grey_files_kept_as_they_are_are_told_of(cli, images: list[np.ndarray]) -> None:
    done = cli("-gray", "-encoded", "in/", "list.txt", "made", tool="convert_imageset")
    assert done.err.count("set force_gray: true") == 1
    assert records("made")["00000000_0.png"].data == Path("in/0.png").read_bytes()


def test_many_images_in_several_commits(cli, images: list[np.ndarray]) -> None:
    Path("list.txt").write_text("".join(f"{i % 5}.png {i}\n" for i in range(2005)))
    done = cli(
        "-resize_height", "1", "-resize_width", "1", "in/", "list.txt", "made", tool="convert_imageset"
    )
    assert [line.split("] ")[1] for line in done.err.splitlines() if "Processed" in line] == [
        f"Processed {n} files." for n in (1000, 2000, 2005)
    ]
    assert [datum.label for datum in records("made").values()] == list(range(2005))


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=str)
def test_stopped_in_the_midst_it_leaves_nothing(start, images: list[np.ndarray], number: int) -> None:
    if signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip("this process ignores the signal (nohup), and so do its children")
    Path("list.txt").write_text("".join(f"{i % 5}.png {i}\n" for i in range(200_000)))
    process = start("convert_imageset", "in/", "list.txt", "made")
    while "Processed 1000 files" not in process.stderr.readline():
        assert process.poll() is None
    begun = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == {signal.SIGINT: 130}.get(number, 128 + number)
    assert time.monotonic() - begun < 20
    assert "Traceback" not in err
    assert sorted(os.listdir()) == ["in", "list.txt"]
