"""Databases that appear together, whole, or not at all. (Interrupted: test_convert_imageset.py.)"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from caffe.errors import DataError
from caffe_tools.new_databases import new_databases


@pytest.mark.parametrize("backend", ["lmdb", "leveldb"])
def test_one_without_records_keeps_back_all(backend: str) -> None:
    with pytest.raises(DataError, match="nothing was written, so far/empty was not made"):
        with new_databases(["far/full", "far/empty"], backend) as (full, _):
            full.put("0", b"value")
    assert not os.listdir()


@pytest.mark.parametrize("other", ["a", "./a", "b/../a", "a/"])
def test_each_has_a_place_of_its_own(other: str) -> None:
    with pytest.raises(DataError, match="are the same"):
        with new_databases(["a", other], "lmdb"):
            pytest.fail("it must be refused before anything is computed")
    assert not os.listdir()


def test_folders_that_were_there_stay() -> None:
    Path("there").mkdir()
    with pytest.raises(DataError, match="boom"):
        with new_databases(["there/new/db"], "lmdb"):
            raise DataError("boom")
    assert os.listdir() == ["there"] and not os.listdir("there")
    with new_databases(["there/new/db"], "lmdb") as (database,):
        database.put("0", b"value")
    assert os.listdir("there/new") == ["db"]
