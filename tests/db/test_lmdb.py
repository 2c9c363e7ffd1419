"""LMDB: our reader against the lmdb package's writer, and the other way round."""

from __future__ import annotations

import itertools
import os
import shutil
import stat
import struct
from collections.abc import Callable
from pathlib import Path

import lmdb
import numpy as np
import pytest

from caffe.db import Cursor, open_db
from caffe.db.base import Piece
from caffe.errors import DataError, ForkError


def write(path: Path, records: dict[bytes, bytes], **options: int) -> None:
    with lmdb.open(str(path), map_size=1 << 28, **options) as env, env.begin(write=True) as txn:
        for key, value in records.items():
            txn.put(key, value)


def read(path: Path) -> list[tuple[bytes, bytes]]:
    with open_db(str(path), "lmdb") as db:
        cursor, out = db.cursor(), []
        while cursor.valid():
            out.append((cursor.key(), cursor.value()))
            cursor.next()
        assert_rows(db.cursor(), [value for _, value in out])
        assert db.entries == len(out)
        return out


def assert_rows(cursor: Cursor, values: list[bytes], most: int = 1 << 16) -> int:
    """What comes at once is what comes singly; how many records were passed at once? (A fault is no
    AssertionError, so that it is told apart from what damaged files do.)"""
    place = at_once = 0
    counts = itertools.cycle([1, 5, 3, 40])
    while cursor.valid():
        count, step = next(counts), 1 + place % 3
        found: list[bytes] = []

        def accept(pieces: list[Piece], count: int = count, found: list[bytes] = found) -> bool:
            found += [row.tobytes() for block, chosen in pieces for row in block[chosen]]
            return count != 3

        taken = cursor.rows(count, step, most, accept)
        if found and found != values[place::step][:count]:
            pytest.fail(f"{count} values from {place}, each {step}.: not those of the records")
        if taken:
            place += (count - 1) * step
            at_once += (count - 1) * step + 1
        if cursor.value() != values[place]:
            pytest.fail(f"the cursor is not at {place}")
        cursor.next()
        place += 1
    return at_once


def some_records(rng: np.random.Generator, count: int, sizes: tuple[int, ...]) -> dict[bytes, bytes]:
    """Values on leaf pages and on runs of overflow pages, in no order of keys."""
    keys = rng.permutation(count * 3)[:count]
    return {b"%d" % k: rng.bytes(int(rng.choice(sizes))) for k in keys}


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (0, (1,)),
        (1, (0,)),
        (3, (10,)),
        (5000, (0, 1, 30)),
        (400, (10, 2021, 2022, 4080, 4081, 20000)),
        (3000, (300,)),
        (600, (3000,)),
    ],
    ids=["empty", "one", "one page", "three levels", "overflow pages", "of one size", "large of one size"],
)
def test_reads_what_the_package_wrote(
    tmp_path: Path, rng: np.random.Generator, count: int, sizes: tuple[int, ...]
) -> None:
    records = some_records(rng, count, sizes)
    write(tmp_path / "db", records)
    assert read(tmp_path / "db") == sorted(records.items())


def test_reads_after_deletions_and_replacements(tmp_path: Path, rng: np.random.Generator) -> None:
    records = some_records(rng, 2000, (5, 300, 9000))
    write(tmp_path / "db", records)
    keys = list(records)
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 28) as env, env.begin(write=True) as txn:
        for key in keys[::3]:
            txn.delete(key)
            del records[key]
        for key in keys[1::3]:
            records[key] = rng.bytes(700)
            txn.put(key, records[key])
    assert read(tmp_path / "db") == sorted(records.items())


def test_skip_lands_where_single_steps_do(tmp_path: Path, rng: np.random.Generator) -> None:
    records = sorted(some_records(rng, 3000, (8, 100)).items())
    write(tmp_path / "db", dict(records))
    with open_db(str(tmp_path / "db"), "lmdb") as db:
        cursor, place = db.cursor(), 0
        for step in (0, 1, 2, 37, 500, 999):
            assert cursor.skip(step) == step
            place += step
            assert (cursor.key(), cursor.value()) == records[place]
        assert cursor.skip(10**9) == 3000 - place
        assert not cursor.valid()
        assert cursor.skip(1) == 0
        cursor.seek_to_first()
        assert cursor.key() == records[0][0]


@pytest.mark.parametrize("size", [1, 800, 2021, 3000, 9000])
def test_values_of_one_size_come_at_once(tmp_path: Path, rng: np.random.Generator, size: int) -> None:
    values = [rng.bytes(size) for _ in range(600)]
    write(tmp_path / "db", {b"%04d" % i: value for i, value in enumerate(values)})
    with open_db(str(tmp_path / "db"), "lmdb") as db:
        assert assert_rows(db.cursor(), values) > 400
        assert assert_rows(db.cursor(), values, most=size - 1) == 0


def test_values_of_several_sizes_come_singly(tmp_path: Path, rng: np.random.Generator) -> None:
    values = [rng.bytes(800 + i % 2) for i in range(100)]
    write(tmp_path / "db", {b"%04d" % i: value for i, value in enumerate(values)})
    with open_db(str(tmp_path / "db"), "lmdb") as db:
        assert assert_rows(db.cursor(), values) == 0


def test_the_package_reads_what_we_wrote(tmp_path: Path, rng: np.random.Generator) -> None:
    records = some_records(rng, 500, (10, 3000, 50000))
    with open_db(str(tmp_path / "db"), "lmdb", "new") as db:
        transaction = db.transaction()
        for i, (key, value) in enumerate(records.items()):
            transaction.put(key, value)
            if i % 100 == 99:
                transaction.commit()
        transaction.commit()
        assert db.entries == 500
    with lmdb.open(str(tmp_path / "db"), readonly=True, lock=False) as env, env.begin() as txn:
        assert list(txn.cursor()) == sorted(records.items())


def test_the_map_grows_within_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caffe.db.lmdb._FIRST_MAP_SIZE", 1 << 16)
    records = {b"%03d" % i: bytes((i,)) * 100_000 for i in range(50)}  # 5 MB
    with open_db(str(tmp_path / "db"), "lmdb", "new") as db:
        transaction = db.transaction()
        for key, value in records.items():
            transaction.put(key, value)
        transaction.commit()
    assert read(tmp_path / "db") == sorted(records.items())


def test_nothing_is_there_before_commit(tmp_path: Path) -> None:
    with open_db(str(tmp_path / "db"), "lmdb", "new") as db:
        transaction = db.transaction()
        transaction.put(b"a", b"1")
        assert read(tmp_path / "db") == []
        transaction.commit()
        assert read(tmp_path / "db") == [(b"a", b"1")]


def test_write_mode_adds_and_replaces(tmp_path: Path) -> None:
    write(tmp_path / "db", {b"a": b"1", b"b": b"2"})
    with open_db(str(tmp_path / "db"), "lmdb", "write") as db:
        transaction = db.transaction()
        transaction.put(b"b", b"3")
        transaction.put(b"c", b"4")
        transaction.commit()
    assert read(tmp_path / "db") == [(b"a", b"1"), (b"b", b"3"), (b"c", b"4")]


@pytest.mark.parametrize("key", [b"", b"k" * 512])
def test_a_key_that_lmdb_cannot_hold_is_refused(tmp_path: Path, key: bytes) -> None:
    with open_db(str(tmp_path / "db"), "lmdb", "new") as db:
        with pytest.raises(DataError, match="1 to 511 bytes"):
            db.transaction().put(key, b"")


def test_new_refuses_what_exists(tmp_path: Path) -> None:
    write(tmp_path / "db", {b"a": b"1"})
    with pytest.raises(DataError, match="exists already; remove it"):
        open_db(str(tmp_path / "db"), "lmdb", "new")
    assert read(tmp_path / "db") == [(b"a", b"1")]


def test_read_only_folder_without_lock_file(tmp_path: Path) -> None:
    write(tmp_path / "db", {b"a": b"1"}, lock=False)
    (tmp_path / "db").chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert read(tmp_path / "db") == [(b"a", b"1")]
        assert [p.name for p in (tmp_path / "db").iterdir()] == ["data.mdb"]
    finally:
        (tmp_path / "db").chmod(stat.S_IRWXU)


def test_many_readers_beside_an_open_environment(tmp_path: Path) -> None:
    write(tmp_path / "db", {b"a": b"1", b"b": b"2"})
    with (
        lmdb.open(str(tmp_path / "db"), map_size=1 << 28),
        open_db(str(tmp_path / "db"), "lmdb") as one,
        open_db(str(tmp_path / "db"), "lmdb") as two,
    ):
        first, second, third = one.cursor(), one.cursor(), two.cursor()
        first.next()
        assert (first.key(), second.key(), third.key()) == (b"b", b"a", b"a")


# -- what goes wrong ------------------------------------------------------------------------------------


def test_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        DataError, match=r"LMDB 'none': No such file or directory \(the path is relative to /"
    ):
        open_db("none", "lmdb")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"x" * 5000, "is no LMDB data file"),
        (bytes(12) + struct.pack("<I", 0xBEEFC0DE) + bytes(5000), "32-bit machine"),
        (bytes(16) + struct.pack(">I", 0xBEEFC0DE) + bytes(5000), "big-endian"),
        (bytes(16) + struct.pack("<II", 0xBEEFC0DE, 7) + bytes(5000), "data version 7"),
        (bytes(16) + struct.pack("<IIQQI", 0xBEEFC0DE, 1, 0, 0, 1000) + bytes(5000), "page size of 1000"),
    ],
)
def test_what_is_no_lmdb(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "data.mdb").write_bytes(content)
    with pytest.raises(DataError, match=message):
        open_db(str(tmp_path), "lmdb")


def test_other_kinds_are_told_apart(tmp_path: Path, golden: Path) -> None:
    with pytest.raises(DataError, match="this is a LevelDB; write backend: LEVELDB"):
        open_db(str(golden / "data/db/raw_leveldb"), "lmdb")
    with pytest.raises(DataError, match="holds no data.mdb"):
        open_db(str(tmp_path), "lmdb")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match="it is a file.; give the directory"):
        open_db(str(tmp_path / "file"), "lmdb")


def test_duplicate_keys_are_refused(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "db"), max_dbs=2) as env:
        env.open_db(b"named")
    with open_db(str(tmp_path / "db"), "lmdb") as db, pytest.raises(DataError, match="named databases"):
        db.cursor().value()


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_truncated(tmp_path: Path, rng: np.random.Generator, share: float) -> None:
    write(tmp_path / "db", some_records(rng, 2000, (10, 500, 9000)))
    file = tmp_path / "db" / "data.mdb"
    os.truncate(file, int(file.stat().st_size * share))
    with pytest.raises(DataError, match=r"db'.*(truncated or damaged|is damaged).*again"):
        read(tmp_path / "db")


def test_truncated_while_reading(tmp_path: Path, rng: np.random.Generator) -> None:
    write(tmp_path / "db", some_records(rng, 2000, (500, 9000)))
    with open_db(str(tmp_path / "db"), "lmdb") as db:
        cursor = db.cursor()
        cursor.skip(5)
        os.truncate(tmp_path / "db" / "data.mdb", 16384)
        with pytest.raises(DataError, match="truncated or damaged"):
            while cursor.valid():
                cursor.value()
                cursor.next()


def test_deleted_while_reading(tmp_path: Path) -> None:
    write(tmp_path / "db", {b"a": b"1"})
    with open_db(str(tmp_path / "db"), "lmdb") as db:
        db.check()
        shutil.rmtree(tmp_path / "db")
        with pytest.raises(DataError, match="deleted while it was being read"):
            db.check()


def test_one_commit_leaves_the_snapshot_whole_a_second_is_noticed(tmp_path: Path) -> None:
    write(tmp_path / "db", {b"%04d" % i: b"old" * 50 for i in range(3000)})
    with open_db(str(tmp_path / "db"), "lmdb") as db:
        cursor = db.cursor()
        write(tmp_path / "db", {b"%04d" % i: b"new" * 50 for i in range(3000)})
        values = set()
        while cursor.valid():
            values.add(cursor.value())
            cursor.next()
        assert values == {b"old" * 50}
        db.check()
        write(tmp_path / "db", {b"%04d" % i: b"newer" * 50 for i in range(3000)})
        with pytest.raises(DataError, match="another process wrote to it"):
            db.check()


def test_a_closed_database_is_no_crash(tmp_path: Path) -> None:
    write(tmp_path / "db", {b"a": b"1"})
    db = open_db(str(tmp_path / "db"), "lmdb")
    db.close()
    db.close()
    with pytest.raises(DataError, match="closed"):
        db.cursor()


def test_modes_are_kept_apart(tmp_path: Path) -> None:
    with (
        open_db(str(tmp_path / "db"), "lmdb", "new") as db,
        pytest.raises(DataError, match="opened to write"),
    ):
        db.cursor()
    with open_db(str(tmp_path / "db"), "lmdb") as db, pytest.raises(DataError, match="opened to read"):
        db.transaction()
    with pytest.raises(DataError, match="unknown mode 'append'"):
        open_db(str(tmp_path / "db"), "lmdb", "append")
    with pytest.raises(DataError, match="Unknown database backend 'lmbd'.*did you mean 'lmdb'"):
        open_db(str(tmp_path / "db"), "lmbd")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_reads_but_does_not_write(tmp_path: Path) -> None:
    writer = open_db(str(tmp_path / "db"), "lmdb", "new")
    transaction = writer.transaction()
    transaction.put(b"a", b"1")
    transaction.commit()
    reader = open_db(str(tmp_path / "db"), "lmdb")
    cursor = reader.cursor()
    pid = os.fork()
    if pid == 0:
        try:
            transaction.put(b"b", b"2")
            transaction.commit()
        except ForkError:
            os._exit(0 if cursor.value() == b"1" else 3)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    writer.close()
    reader.close()


def _fuzz(tmp_path: Path, original: bytes, rng: np.random.Generator, rounds: int) -> int:
    refused = 0
    file = tmp_path / "data.mdb"
    for _ in range(rounds):
        data = np.frombuffer(original, np.uint8).copy()
        places = rng.integers(0, data.size, rng.choice([1, 10, 300]))
        data[places] = rng.integers(0, 256, places.size)
        # Headers and node offsets are where most of the checks are.
        data[rng.integers(0, data.size // 4096, 3) * 4096 + rng.integers(0, 40, 3)] = rng.integers(0, 256, 3)
        file.write_bytes(data.tobytes())
        try:
            read(tmp_path)
        except DataError:
            refused += 1
        except AssertionError:  # entries of the header against what was found
            refused += 1
    return refused


def test_damaged_pages_are_refused(tmp_path: Path, golden: Path, rng: np.random.Generator) -> None:
    original = (golden / "data/db/many_lmdb/data.mdb").read_bytes()
    assert _fuzz(tmp_path, original, rng, 300) > 100


def _leaf_pages(data: bytearray) -> list[int]:
    """Where leaf pages with records of this file begin."""
    pages = range(2 * 4096, len(data), 4096)
    return [p for p in pages if struct.unpack_from("<H", data, p + 10)[0] & 0x67 == 2]


def _nodes(data: bytearray, page: int) -> list[int]:
    count = (struct.unpack_from("<H", data, page + 12)[0] - 16) // 2
    return [page + offset for offset in struct.unpack_from(f"<{count}H", data, page + 16)]


def _values_past_the_page(data: bytearray) -> None:
    for page in _leaf_pages(data):
        for node in _nodes(data, page):
            struct.pack_into("<H", data, node, 1300)


def _key_below_those_before(data: bytearray) -> None:
    node = _nodes(data, _leaf_pages(data)[-2])[0]  # between others that are read with it
    data[node + 8 : node + 12] = b"0000"


def _overflow_page_of_another_number(data: bytearray) -> None:
    page = next(p for p in range(2 * 4096, len(data), 4096) if struct.unpack_from("<H", data, p + 10)[0] == 4)
    data[page] ^= 64


@pytest.mark.parametrize(
    ("size", "damage", "message"),
    [
        (300, _values_past_the_page, "a value ends outside of its page"),
        (300, _key_below_those_before, "out of order"),
        (3000, _overflow_page_of_another_number, "holds no value of 3000 bytes"),
    ],
)
def test_what_is_damaged_does_not_come_at_once(
    tmp_path: Path, rng: np.random.Generator, size: int, damage: Callable[[bytearray], None], message: str
) -> None:
    write(tmp_path / "db", {b"%04d" % i: rng.bytes(size) for i in range(60)})
    file = tmp_path / "db" / "data.mdb"
    data = bytearray(file.read_bytes())
    damage(data)
    file.write_bytes(data)
    with open_db(str(tmp_path / "db"), "lmdb") as db:
        assert not db.cursor().rows(60, 1, 1 << 16, lambda pieces: True)
    with pytest.raises(DataError, match=message):
        read(tmp_path / "db")


@pytest.mark.parametrize("size", [300, 3000])
def test_damaged_pages_of_values_of_one_size_are_refused(
    tmp_path: Path, rng: np.random.Generator, size: int
) -> None:
    write(tmp_path / "db", {b"%04d" % i: rng.bytes(size) for i in range(60)})
    original = (tmp_path / "db" / "data.mdb").read_bytes()
    assert _fuzz(tmp_path, original, rng, 200) > 60


@pytest.mark.full
def test_damaged_pages_are_refused_at_length(tmp_path: Path, rng: np.random.Generator) -> None:
    write(tmp_path / "db", some_records(rng, 600, (3, 3, 3, 200, 5000)))
    original = (tmp_path / "db" / "data.mdb").read_bytes()
    assert _fuzz(tmp_path, original, rng, 10_000) > 3000
