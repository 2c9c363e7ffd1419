"""caffe data: from local files and from a server on this machine; nothing half-made stays."""

from __future__ import annotations

import gzip
import hashlib
import os
import pty
import struct
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import file_server
from caffe.db import open_db
from caffe.download import RemoteFile
from caffe.proto.caffe_pb2 import Datum
from caffe_tools import cifar, public_data

TRAIN, TEST = 50, 30
STEMS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def arrays(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The content of MNIST's four files, in small: images of 6 x 5 pixels."""
    out = {}
    for part, count in (("train", TRAIN), ("t10k", TEST)):
        out[f"{part}-images-idx3-ubyte"] = rng.integers(256, size=(count, 6, 5), dtype=np.uint8)
        out[f"{part}-labels-idx1-ubyte"] = rng.integers(10, size=count, dtype=np.uint8)
    return out


def idx(array: np.ndarray) -> bytes:
    """An idx file by its description: 0, 0, 8 for uint8, number of axes, axes, data."""
    return (
        bytes([0, 0, 8, array.ndim]) + b"".join(struct.pack(">I", n) for n in array.shape) + array.tobytes()
    )


@pytest.fixture
def files(arrays: dict[str, np.ndarray], tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for stem, array in arrays.items():
        (folder / stem).write_bytes(idx(array))
    return folder


def read(path: Path, backend: str = "lmdb") -> list[tuple[bytes, Datum]]:
    with open_db(str(path), backend) as db:
        cursor, out = db.cursor(), []
        while cursor.valid():
            out.append((cursor.key(), Datum.FromString(cursor.value())))
            cursor.next()
        return out


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def check_mnist(folder: Path, arrays: dict[str, np.ndarray], backend: str = "lmdb") -> None:
    assert names(folder) == [f"mnist_test_{backend}", f"mnist_train_{backend}"]
    for part, stem in (("train", "train"), ("test", "t10k")):
        images, labels = arrays[f"{stem}-images-idx3-ubyte"], arrays[f"{stem}-labels-idx1-ubyte"]
        records = read(folder / f"mnist_{part}_{backend}", backend)
        assert [key for key, _ in records] == [b"%08d" % i for i in range(len(labels))]
        assert [d.label for _, d in records] == labels.tolist()
        assert {(d.channels, d.height, d.width) for _, d in records} == {(1, 6, 5)}
        assert b"".join(d.data for _, d in records) == images.tobytes()


@pytest.mark.parametrize("backend", ["lmdb", "leveldb"])
def test_mnist_from_local_files(cli, files, arrays, backend):
    done = cli("data", "mnist", "out", "--from", files, "-backend", backend)
    assert done.status == 0, done.err
    check_mnist(Path("out"), arrays, backend)
    assert f"Wrote {TRAIN} records to out/mnist_train_{backend}\n" in done.err
    assert f"Wrote {TEST} records to out/mnist_test_{backend}\n" in done.err


def test_files_may_be_gzipped_and_named_as_unpackers_name_them(cli, files, arrays):
    for stem, end in zip(STEMS, (".gz", "", "", ".gz"), strict=True):
        data = (files / stem).read_bytes()
        (files / stem).unlink()
        name = stem.replace("-idx", ".idx") if "labels" in stem else stem
        (files / f"{name}{end}").write_bytes(gzip.compress(data) if end else data)
    assert cli("data", "mnist", "out", f"-from={files}").status == 0
    check_mnist(Path("out"), arrays)


def test_local_files_that_are_not_mnists_own_are_told_of(cli, files, monkeypatch):
    done = cli("data", "mnist", "out", "--from", files)
    warnings = [line for line in done.err.splitlines() if line.startswith("W")]
    assert len(warnings) == 4
    assert all("is not that of mnist (its MD5 differs)" in line for line in warnings)
    own = {stem: hashlib.md5((files / stem).read_bytes()).hexdigest() for stem in STEMS}
    monkeypatch.setitem(public_data.SETS, "mnist", public_data.MNIST._replace(unpacked=own))
    assert "is not that of" not in cli("data", "mnist", "out2", "--from", files).err


def _cut(data: bytes) -> bytes:
    return data[:-1]


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize(
    ("stem", "damage", "message"),
    [
        (
            STEMS[0],
            _cut,
            "50 x 6 x 5, but there are only 1499 of 1500 bytes of data: it is truncated or damaged",
        ),
        (STEMS[2], lambda data: data + b"x", "there are more than 900 bytes"),
        (STEMS[1], _cut, "only 49 of 50 bytes"),
        (STEMS[0], lambda data: data[:10], "truncated: it ends within its header"),
        (
            STEMS[0],
            lambda data: b"",
            "Incorrect image file magic. An idx3-ubyte file begins with the bytes 00 00 08 03",
        ),
        (STEMS[1], lambda data: b"\0\0\x08\x03" + data[4:], "Incorrect label file magic"),
        (STEMS[0], lambda data: data[:8] + bytes(4) + data[12:], "images of 0 x 5 pixels"),
        (
            STEMS[0],
            lambda data: data[:4] + b"\xff" * 12 + data[16:],
            "only 1500 of 79228162458924105385300197375",
        ),
        (STEMS[1], lambda data: data[:4] + struct.pack(">I", 49) + data[9:], "50 images, but"),
        (STEMS[3], lambda data: gzip.compress(data)[:-10], "damaged or truncated gzip file"),
        (STEMS[2], lambda data: _flipped(gzip.compress(data)), "damaged or truncated gzip file"),
    ],
)
def test_damaged_files_are_refused(cli, files, stem, damage, message):
    path = files / stem
    path.write_bytes(damage(path.read_bytes()))
    done = cli("data", "mnist", "out", "--from", files)
    assert done.status == 1
    assert str(path) in done.error and message in done.error
    assert not Path("out").exists()


def test_missing_files_are_listed(cli, files):
    for stem in STEMS[1:3]:
        (files / stem).unlink()
    done = cli("data", "mnist", "out", "--from", files)
    assert done.status == 1
    assert f"lacks {STEMS[1]}, {STEMS[2]} (as it is, or with .gz)" in done.error
    assert cli("data", "mnist", "out", "--from", "nowhere").status == 2


def test_what_is_there_is_not_overwritten(cli, files, arrays, server):
    cli("data", "mnist", "out", "--from", files)
    for argv in (["--from", files], []):
        done = cli("data", "mnist", "out", *argv)
        assert (done.status, server.requests) == (1, [])
        assert "mnist_train_lmdb" in done.error and "exists already; remove it" in done.error
    check_mnist(Path("out"), arrays)


def test_force_replaces_databases(cli, files, arrays):
    cli("data", "mnist", "out", "--from", files)
    arrays["t10k-labels-idx1-ubyte"] = 9 - arrays["t10k-labels-idx1-ubyte"]
    (files / "t10k-labels-idx1-ubyte").write_bytes(idx(arrays["t10k-labels-idx1-ubyte"]))
    assert cli("data", "mnist", "out", "--from", files, "--force").status == 0
    check_mnist(Path("out"), arrays)


def test_a_failure_while_writing_leaves_nothing(cli, files, monkeypatch):
    def fails(images: np.ndarray, labels: np.ndarray) -> Iterator[tuple[str, Datum]]:
        yield "0", Datum()
        raise KeyboardInterrupt

    monkeypatch.setattr("caffe_tools.data.digit_records", fails)
    assert cli("data", "mnist", "out", "--from", files).status == 130
    assert not Path("out").exists()


def test_a_folder_that_cannot_be(cli, files):
    Path("file").touch()
    done = cli("data", "mnist", "file/out", "--from", files)
    assert done.status == 1
    assert "cannot write" in done.error and "Not a directory" in done.error


def test_siamese_pairs(cli, files, arrays):
    assert cli("data", "mnist-siamese", "out", "--from", files).status == 0
    assert names(Path("out")) == ["mnist_siamese_test_lmdb", "mnist_siamese_train_lmdb"]
    for part, stem, count in (("train", "train", TRAIN), ("test", "t10k", TEST)):
        images, labels = arrays[f"{stem}-images-idx3-ubyte"], arrays[f"{stem}-labels-idx1-ubyte"]
        where = {image.tobytes(): i for i, image in enumerate(images)}
        records = read(Path(f"out/mnist_siamese_{part}_lmdb"))
        assert [key for key, _ in records] == [b"%08d" % i for i in range(count)]
        assert {(d.channels, d.height, d.width) for _, d in records} == {(2, 6, 5)}
        pairs = [(where[d.data[:30]], where[d.data[30:]]) for _, d in records]
        assert [d.label for _, d in records] == [int(labels[i] == labels[j]) for i, j in pairs]
        # Drawn at random: most images occur, in no order.
        assert len({i for pair in pairs for i in pair}) > count / 2
        assert pairs != sorted(pairs)
    cli("data", "mnist-siamese", "again", "--from", files)
    assert read(Path("again/mnist_siamese_train_lmdb")) == read(Path("out/mnist_siamese_train_lmdb"))


# ---------------------------------------------------------------- CIFAR-10


@pytest.fixture
def batches(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with the six files, of 20 images each: a label, then 3 x 32 x 32 bytes."""
    monkeypatch.setattr(cifar, "PER_FILE", 20)
    folder = tmp_path / "download" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
        rows = rng.integers(256, size=(20, 3073), dtype=np.uint8)
        rows[:, 0] %= 10
        (folder / name).write_bytes(rows.tobytes())
    return folder


def pack(batches: Path, archive: Path) -> Path:
    archive.parent.mkdir(exist_ok=True)
    with tarfile.open(archive, "w:gz") as file:
        file.add(batches, "cifar-10-batches-bin")
    return archive


def check_cifar(folder: Path, batches: Path) -> None:
    assert names(folder) == ["cifar10_test_lmdb", "cifar10_train_lmdb"]
    for part, files in (
        ("train", [f"data_batch_{i}.bin" for i in range(1, 6)]),
        ("test", ["test_batch.bin"]),
    ):
        records = read(folder / f"cifar10_{part}_lmdb")
        assert [key for key, _ in records] == [b"%05d" % i for i in range(20 * len(files))]
        assert {(d.channels, d.height, d.width) for _, d in records} == {(3, 32, 32)}
        rows = b"".join(bytes([d.label]) + d.data for _, d in records)
        assert rows == b"".join((batches / name).read_bytes() for name in files)


def test_cifar10_from_its_folder_the_one_above_or_the_archive(cli, batches, tmp_path):
    archive = pack(batches, tmp_path / "packed" / "cifar-10-binary.tar.gz")
    for i, source in enumerate((batches, batches.parent, archive.parent)):
        done = cli("data", "cifar10", f"out{i}", "--from", source)
        assert done.status == 0, done.err
        check_cifar(Path(f"out{i}"), batches)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: p.write_bytes(p.read_bytes()[:-1]), "61459 bytes, but 20 images of CIFAR-10 take 61460"),
        (lambda p: p.write_bytes(p.read_bytes() + b"x"), "61461 bytes, but"),
        (
            lambda p: p.write_bytes(p.read_bytes()[:3073] + b"\x0a" + p.read_bytes()[3074:]),
            "image 1 has label 10; CIFAR-10's are 0 to 9",
        ),
        (Path.unlink, "test_batch.bin"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_damaged_cifar10_files_are_refused(cli, batches, tmp_path, damage, message, packed):
    damage(batches / "test_batch.bin")
    source = pack(batches, tmp_path / "packed" / "cifar-10-binary.tar.gz").parent if packed else batches
    done = cli("data", "cifar10", "out", "--from", source)
    assert done.status == 1
    assert message in done.error
    assert not Path("out").exists()


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], _flipped, lambda data: b"<html>"])
def test_a_damaged_archive_is_refused(cli, batches, tmp_path, damage):
    archive = pack(batches, tmp_path / "packed" / "cifar-10-binary.tar.gz")
    archive.write_bytes(damage(archive.read_bytes()))
    done = cli("data", "cifar10", "out", "--from", archive.parent)
    assert done.status == 1
    assert "damaged or truncated archive" in done.error
    assert not Path("out").exists()


def test_a_folder_without_cifar10(cli, tmp_path):
    done = cli("data", "cifar10", "out", "--from", tmp_path)
    assert done.status == 1
    assert "neither cifar-10-binary.tar.gz nor data_batch_1.bin is in" in done.error


# ---------------------------------------------------------------- downloads


@pytest.fixture
def server(
    files: Path, arrays: dict[str, np.ndarray], batches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[file_server.FileServer]:
    """Has the public files, in small, below good/; below bad/ it has nothing."""
    contents = {f"{stem}.gz": gzip.compress((files / stem).read_bytes()) for stem in STEMS}
    archive = pack(batches, tmp_path / "served" / "cifar-10-binary.tar.gz")
    contents[archive.name] = archive.read_bytes()
    with file_server.running() as server:
        for name, known in public_data.SETS.items():
            remote = tuple(
                RemoteFile(f.name, len(contents[f.name]), hashlib.md5(contents[f.name]).hexdigest())
                for f in known.files
            )
            mirrors = (server.url("bad/"), server.url("good/"))
            monkeypatch.setitem(public_data.SETS, name, known._replace(files=remote, mirrors=mirrors))
        for name, content in contents.items():
            server.answers[f"/good/{name}"] = file_server.whole(content)
        yield server


def test_downloads_are_kept_for_the_next_time(cli, server, arrays, batches, tmp_path):
    done = cli("data", "mnist", "out")
    assert done.status == 0, done.err
    check_mnist(Path("out"), arrays)
    assert f"Cannot download {server.url('bad/')}{STEMS[0]}.gz: HTTP status 404" in done.err
    assert "\x1b" not in done.err, "a progress bar, though nobody watches"
    assert names(tmp_path / "cache/pycaffe/downloads/mnist") == sorted(f"{s}.gz" for s in STEMS)
    asked = len(server.requests)
    assert cli("data", "mnist-siamese", "out").status == 0
    assert len(server.requests) == asked
    assert cli("data", "fashion-mnist", "clothes").status == 0
    assert names(Path("clothes")) == ["fashion_mnist_test_lmdb", "fashion_mnist_train_lmdb"]
    assert len(server.requests) > asked
    assert cli("data", "cifar10", "colours").status == 0
    check_cifar(Path("colours"), batches)


def test_an_altered_file_is_refused(cli, server, files):
    altered = _flipped(gzip.compress((files / STEMS[2]).read_bytes()))
    server.answers[f"/good/{STEMS[2]}.gz"] = file_server.whole(altered)
    done = cli("data", "mnist", "out")
    assert done.status == 1
    assert f"{server.url('good/')}{STEMS[2]}.gz: its MD5 is not" in done.error
    assert not Path("out").exists()


def test_without_a_network_the_files_are_named(cli, server):
    server.answers.clear()
    done = cli("data", "mnist", "out")
    assert done.status == 1
    listed = ", ".join(f"{stem}.gz" for stem in STEMS)
    assert f"Without a network: put {listed} into a folder, and add: --from THAT_FOLDER" in done.error
    assert not Path("out").exists()
    assert "put cifar-10-binary.tar.gz into a folder" in cli("data", "cifar10", "out").error


def test_a_progress_bar_on_a_terminal(server, tmp_path):
    script = (
        "from caffe_tools import main, public_data\n"
        "from caffe.download import RemoteFile\n"
        f"files = [RemoteFile(*f) for f in {[tuple(f) for f in public_data.SETS['mnist'].files]}]\n"
        f"public_data.SETS['mnist'] = public_data.PublicSet(files, [{server.url('good/')!r}], {{}})\n"
        "raise SystemExit(main.run(['data', 'mnist', 'out']))\n"
    )
    master, slave = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", script], stderr=slave, env={**os.environ, "TERM": "xterm"}
        )
        os.close(slave)
        seen = bytearray()
        while True:
            try:
                block = os.read(master, 1 << 16)
            except OSError:  # Linux says so when the other end is closed
                break
            if not block:
                break
            seen += block
        assert process.wait(timeout=60) == 0
    finally:
        os.close(master)
    text = seen.decode()
    assert "━" in text and all(f"{stem}.gz" in text for stem in STEMS)


def test_the_table_says_whence_each_file_comes():
    for known in (public_data.MNIST, public_data.FASHION_MNIST):
        assert {f.name for f in known.files} == {f"{stem}.gz" for stem in STEMS}
        assert set(known.unpacked) == set(STEMS)
    for known in public_data.SETS.values():
        assert len(known.mirrors) > 1
        for mirror in known.mirrors:
            assert mirror.startswith("https://") and mirror.endswith("/")
        for file in known.files:
            assert len(bytes.fromhex(file.md5)) == 16


@pytest.mark.parametrize("argv", [[], ["mnist"], ["mnsit", "out"], ["mnist", "out", "--backend", "sqlite"]])
def test_command_lines_that_mean_nothing(cli, argv):
    assert cli("data", *argv).status == 2


def test_help(cli):
    done = cli("data", "--help")
    assert done.status == 0
    for name in ("mnist", "mnist-siamese", "fashion-mnist", "cifar10"):
        assert name in done.out
        assert "--from" in cli("data", name, "--help").out
