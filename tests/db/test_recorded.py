"""Databases that the original's convert_imageset wrote, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from caffe.db import open_db

DATABASES = sorted((Path(__file__).parents[1] / "golden" / "data" / "db").glob("*.npz"))


@pytest.mark.parametrize("record", DATABASES, ids=lambda p: p.stem)
def test_keys_and_values_are_those_of_the_original(record: Path) -> None:
    with np.load(record) as arrays:
        meta = json.loads(str(arrays["meta"]))
        wanted = [(r["key"].encode(), arrays[f"value_{i}"].tobytes()) for i, r in enumerate(meta["records"])]
    source = record.with_suffix("")
    before = {p.name: p.stat().st_mtime_ns for p in source.iterdir()}
    with open_db(str(source), meta["kind"]) as db:
        cursor = db.cursor()
        for _ in range(2):
            found = []
            while cursor.valid():
                found.append((cursor.key(), cursor.value()))
                cursor.next()
            assert found == wanted
            cursor.seek_to_first()
        db.check()
        assert db.entries in (None, len(wanted))
    assert {p.name: p.stat().st_mtime_ns for p in source.iterdir()} == before, "reading changed the database"
