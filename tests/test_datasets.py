"""Embedded data sets: found from anywhere, built once, whole or not at all."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from caffe import datasets
from caffe.datasets import resolve_source
from caffe.db import open_db
from caffe.errors import DataError
from caffe.proto import caffe_pb2
from caffe.resources import data_path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


def read(source: str) -> list[caffe_pb2.Datum]:
    with open_db(source, "lmdb") as db:
        cursor, out = db.cursor(), []
        while cursor.valid():
            out.append(caffe_pb2.Datum.FromString(cursor.value()))
            cursor.next()
        return out


def test_any_other_source_is_left_as_it_is() -> None:
    for source in ("train_lmdb", "/data/set", "", "dataset:/x"):
        assert resolve_source(source) == source


def test_the_digits_are_all_there_in_their_split(cache: Path) -> None:
    train, test = (read(resolve_source(f"dataset://digits/{part}")) for part in ("train", "test"))
    assert (len(train), len(test)) == (1500, 297)
    # What UCI states about the set: 1,797 digits, and how many of each class.
    assert np.bincount([d.label for d in train + test]).tolist() == [
        178, 182, 177, 183, 181, 182, 181, 179, 174, 180,
    ]  # fmt: skip
    assert {(d.channels, d.height, d.width) for d in train + test} == {(1, 8, 8)}
    pixels = np.frombuffer(b"".join(d.data for d in train + test), np.uint8)
    assert len(np.unique(pixels)) == 17
    assert (pixels.min(), pixels.max()) == (0, 255)
    assert len({d.data for d in train} & {d.data for d in test}) == 0


def test_built_once_in_the_cache(cache: Path) -> None:
    source = Path(resolve_source("dataset://digits/test"))
    assert source.is_relative_to(cache / "pycaffe")
    built = (source / "data.mdb").stat().st_mtime_ns
    assert Path(resolve_source("dataset://digits/test")) == source
    assert (source / "data.mdb").stat().st_mtime_ns == built
    assert [p.name for p in source.parent.iterdir()] == ["test_lmdb"], "scratch files are left"


def test_nothing_is_written_beside_the_package_data() -> None:
    folder = data_path("models", "digits")
    before = sorted(p.name for p in folder.iterdir())
    resolve_source("dataset://digits/train")
    assert sorted(p.name for p in folder.iterdir()) == before


def test_a_cache_that_cannot_be_written_is_replaced_by_the_working_directory(
    cache: Path, tmp_path: Path
) -> None:
    cache.write_text("a file, not a folder")
    source = Path(resolve_source("dataset://digits/test"))
    assert source.is_relative_to(tmp_path / ".pycaffe")
    assert len(read(str(source))) == 297


def test_no_place_at_all(cache: Path, tmp_path: Path) -> None:
    cache.write_text("")
    (tmp_path / ".pycaffe").write_text("")
    with pytest.raises(DataError, match="cannot build .*Not a directory.*set XDG_CACHE_HOME"):
        resolve_source("dataset://digits/test")


def test_a_failed_build_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(file: Path, part: str) -> datasets.Records:
        yield b"0", caffe_pb2.Datum()
        raise KeyboardInterrupt

    broken = datasets.Dataset(("digits", "digits.npz"), ("train",), interrupted)
    monkeypatch.setitem(datasets._DATASETS, "digits", broken)
    with pytest.raises(KeyboardInterrupt):
        resolve_source("dataset://digits/train")
    assert [p for p in cache.rglob("*") if not p.is_dir()] == []


@pytest.mark.parametrize("source", ["dataset://digits/trian", "dataset://digits", "dataset://mnist/train"])
def test_unknown_names(source: str) -> None:
    with pytest.raises(DataError, match="known: dataset://digits/train, dataset://digits/test"):
        resolve_source(source)


def _resolve(start: object, results: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    results.put(resolve_source("dataset://digits/train"))  # type: ignore[attr-defined]


def test_several_processes_at_once() -> None:
    context = multiprocessing.get_context("spawn")
    start, results = context.Event(), context.Queue()
    workers = [context.Process(target=_resolve, args=(start, results)) for _ in range(3)]
    for worker in workers:
        worker.start()
    start.set()
    sources = {results.get(timeout=60) for _ in workers}
    for worker in workers:
        worker.join()
    (source,) = sources
    assert len(read(source)) == 1500
    assert os.listdir(Path(source).parent) == ["train_lmdb"]
