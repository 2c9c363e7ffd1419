"""LevelDB: our reader and writer.

leveldb_levels.npz holds the files of a database that LevelDB 1.23 (through plyvel 1.5.1, bloom filters,
blocks of 1 KiB, memory tables of 64 KiB) wrote by the operations in `expected`, with compactions in
between: "left" as it stood after closing, with tables on levels 1 and 2, two logs and a table that the
MANIFEST does not know; "reopened" after LevelDB opened it once more and put one record, with tables
on levels 0 to 2.
"""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from caffe.db import open_db
from caffe.db.crc32c import crc32c, mask
from caffe.db.leveldb_version import read_version
from caffe.errors import DataError, ForkError


def read(path: Path) -> list[tuple[bytes, bytes]]:
    with open_db(str(path), "leveldb") as db:
        cursor, out = db.cursor(), []
        while cursor.valid():
            out.append((cursor.key(), cursor.value()))
            cursor.next()
        return out


def write(path: Path, batches: list[dict[bytes, bytes]], mode: str = "new") -> None:
    with open_db(str(path), "leveldb", mode) as db:
        transaction = db.transaction()
        for batch in batches:
            for key, value in batch.items():
                transaction.put(key, value)
            transaction.commit()


def unpack(folder: str, target: Path) -> Path:
    target.mkdir()
    with np.load(Path(__file__).with_name("leveldb_levels.npz")) as files:
        for name in files:
            if name.startswith(folder + "/"):
                (target / name.removeprefix(folder + "/")).write_bytes(files[name].tobytes())
    return target


def expected() -> dict[bytes, bytes]:
    records: dict[bytes, bytes] = {}
    for i in range(2500):
        key = b"key%03d" % (i * 7919 % 800)
        if i % 5 == 4:
            records.pop(key, None)
        else:
            records[key] = (b"%d " % i) * (i % 60)
    return records


@pytest.mark.parametrize(("state", "levels"), [("left", {1, 2}), ("reopened", {0, 1, 2})])
def test_levels_deletions_and_old_files(tmp_path: Path, state: str, levels: set[int]) -> None:
    source = unpack(state, tmp_path / "db")
    assert {t.level for t in read_version(str(source), "").tables.values()} == levels
    wanted = expected() | ({b"key799": b"last"} if state == "reopened" else {})
    assert read(source) == sorted(wanted.items())


@pytest.mark.parametrize("sizes", [(0, 1, 200), (32761, 32754, 32768), (100_000, 3, 70_000)])
def test_round_trip(tmp_path: Path, rng: np.random.Generator, sizes: tuple[int, ...]) -> None:
    records = {b"%05d" % k: rng.bytes(int(rng.choice(sizes))) for k in rng.permutation(200)}
    items = list(records.items())
    write(tmp_path / "db", [dict(items[:1]), dict(items[1:80]), dict(items[80:])])
    assert read(tmp_path / "db") == sorted(items)


# How many bytes are left in a block when the next record begins: none, padding, a bare header, one byte.
@pytest.mark.parametrize("left", [0, 1, 6, 7, 8, 9])
def test_records_around_the_end_of_a_block(tmp_path: Path, left: int) -> None:
    overhead = 7 + 12 + 1 + 1 + 1 + 3  # fragment, batch, kind, key size, key, value size
    first = bytes(32768 - left - overhead)
    write(tmp_path / "db", [{b"a": first}, {b"b": b"second"}, {b"c": b"third" * 9000}])
    assert read(tmp_path / "db") == [(b"a", first), (b"b", b"second"), (b"c", b"third" * 9000)]


def test_later_values_win(tmp_path: Path) -> None:
    write(tmp_path / "db", [{b"a": b"1", b"b": b"2"}, {b"a": b"3"}])
    assert read(tmp_path / "db") == [(b"a", b"3"), (b"b", b"2")]


def test_write_mode_goes_on_after_what_is_there(tmp_path: Path) -> None:
    source = unpack("left", tmp_path / "db")
    write(source, [{b"key000": b"replaced", b"zz": b"added"}], "write")
    assert read(source) == sorted((expected() | {b"key000": b"replaced", b"zz": b"added"}).items())


def test_a_new_database_is_laid_out_as_leveldb_does(tmp_path: Path) -> None:
    """The first edit names LevelDB's comparator, the log and the next file."""
    write(tmp_path / "db", [{b"k": b"v"}])
    assert (tmp_path / "db" / "CURRENT").read_bytes() == b"MANIFEST-000002\n"
    manifest = (tmp_path / "db" / "MANIFEST-000002").read_bytes()
    crc, length, kind = struct.unpack_from("<IHB", manifest)
    assert (length, kind) == (len(manifest) - 7, 1)
    assert crc == mask(crc32c(manifest[6:]))
    assert manifest[7:] == b"\x01\x1aleveldb.BytewiseComparator" + bytes((2, 3, 9, 0, 3, 4, 4, 0))
    log = (tmp_path / "db" / "000003.log").read_bytes()
    assert log[7:] == struct.pack("<QI", 1, 1) + b"\x01\x01k\x01v"


def test_leveldb_itself_reads_what_we_wrote(tmp_path: Path, rng: np.random.Generator) -> None:
    plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for current Python")
    records = {b"%05d" % k: rng.bytes(int(rng.choice((0, 5, 70_000)))) for k in rng.permutation(100)}
    write(tmp_path / "db", [records])
    db = plyvel.DB(str(tmp_path / "db"), paranoid_checks=True)
    assert list(db.iterator(verify_checksums=True)) == sorted(records.items())
    db.close()


# -- what goes wrong ----------------------------------------------------------------------------------


def test_missing_and_other_kinds(tmp_path: Path, golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="No such file or directory .the path is relative to"):
        open_db("none", "leveldb")
    with pytest.raises(DataError, match="this is an LMDB; write backend: LMDB"):
        open_db(str(golden / "data/db/raw_lmdb"), "leveldb")
    with pytest.raises(DataError, match="holds no CURRENT"):
        open_db(str(tmp_path), "leveldb")


@pytest.mark.parametrize(
    "current", [b"", b"000003.log\n", b"MANIFEST-/../x\n", b"\xff\n", b"MANIFEST-000009\n"]
)
def test_a_current_that_leads_nowhere(tmp_path: Path, current: bytes) -> None:
    source = unpack("left", tmp_path / "db")
    (source / "CURRENT").write_bytes(current)
    with pytest.raises(DataError, match="CURRENT|cannot open MANIFEST-000009"):
        open_db(str(source), "leveldb")


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    source = unpack("left", tmp_path / "db")
    (source / "000013.ldb").unlink()
    with pytest.raises(DataError, match=r"000013.ldb, which its MANIFEST names, is missing"):
        open_db(str(source), "leveldb")


@pytest.mark.parametrize("name", ["MANIFEST-000002", "000013.ldb", "000014.log"])
@pytest.mark.parametrize("place", [0.02, 0.4, 0.7])
def test_a_changed_byte_is_found(tmp_path: Path, name: str, place: float) -> None:
    source = unpack("left", tmp_path / "db")
    data = bytearray((source / name).read_bytes())
    data[int(len(data) * place)] ^= 0x10
    (source / name).write_bytes(data)
    with pytest.raises(DataError, match=name):
        read(source)


def test_a_truncated_table_is_found(tmp_path: Path) -> None:
    source = unpack("left", tmp_path / "db")
    os.truncate(source / "000013.ldb", 5000)
    with pytest.raises(DataError, match="000013.ldb is damaged: 5000 bytes instead of 19221"):
        read(source)


def test_a_record_cut_off_by_its_writers_end_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "db", [{b"a": b"1"}, {b"b": b"2" * 50_000}])
    log = tmp_path / "db" / "000003.log"
    for size in (log.stat().st_size - 1, 32768, 200, 30):
        os.truncate(log, size)
        caplog.clear()
        assert read(tmp_path / "db") == [(b"a", b"1")]
        assert "incomplete and left out" in caplog.text


def test_another_order_of_keys_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "db", [{b"a": b"1"}])
    edit = b"\x01\x02my"
    body = b"\x01" + edit
    record = struct.pack("<IHB", mask(crc32c(body)), len(edit), 1) + edit
    (tmp_path / "db" / "MANIFEST-000002").write_bytes(record)
    with pytest.raises(DataError, match="unknown order 'my'"):
        open_db(str(tmp_path / "db"), "leveldb")


def test_deleted_while_reading(tmp_path: Path) -> None:
    source = unpack("left", tmp_path / "db")
    with open_db(str(source), "leveldb") as db:
        db.check()
        shutil.rmtree(source)
        with pytest.raises(DataError, match="deleted while it was being read"):
            db.check()


def test_new_refuses_what_exists(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="mkdir failed: File exists"):
        open_db(str(tmp_path), "leveldb", "new")


def test_modes_are_kept_apart(tmp_path: Path) -> None:
    with (
        open_db(str(tmp_path / "db"), "leveldb", "new") as db,
        pytest.raises(DataError, match="opened to write"),
    ):
        db.cursor()
    with open_db(str(tmp_path / "db"), "leveldb") as db, pytest.raises(DataError, match="opened to read"):
        db.transaction()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_one_process_writes(tmp_path: Path) -> None:
    with open_db(str(tmp_path / "db"), "leveldb", "new") as db:
        transaction = db.transaction()
        transaction.put(b"a", b"1")
        pid = os.fork()
        if pid == 0:
            try:
                transaction.commit()
            except ForkError:
                try:
                    open_db(str(tmp_path / "db"), "leveldb", "write")
                except DataError as error:
                    os._exit(0 if "another process has it open" in str(error) else 3)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        transaction.commit()
    assert read(tmp_path / "db") == [(b"a", b"1")]


def _fuzz(tmp_path: Path, rng: np.random.Generator, rounds: int) -> int:
    source = unpack("left", tmp_path / "db")
    files = {p: p.read_bytes() for p in sorted(source.iterdir())}
    refused = 0
    for _ in range(rounds):
        path = list(files)[rng.integers(len(files))]
        data = np.frombuffer(files[path], np.uint8).copy()
        places = rng.integers(0, data.size, rng.choice([1, 5, 100]))
        data[places] = rng.integers(0, 256, places.size)
        path.write_bytes(data.tobytes()[: rng.integers(1, data.size + 1) if rng.random() < 0.3 else None])
        try:
            read(source)
        except DataError:
            refused += 1
        path.write_bytes(files[path])
    return refused


def test_damaged_files_are_refused(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _fuzz(tmp_path, rng, 60) > 40
    shutil.rmtree(tmp_path / "db")
    # What a checksum lets through must not do harm either.
    for module in ("leveldb_log", "leveldb_table"):
        monkeypatch.setattr(f"caffe.db.{module}.mask", _AnyChecksum)
    assert _fuzz(tmp_path, rng, 100) > 40


class _AnyChecksum(int):
    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


@pytest.mark.full
def test_damaged_files_are_refused_at_length(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("leveldb_log", "leveldb_table"):
        monkeypatch.setattr(f"caffe.db.{module}.mask", _AnyChecksum)
    assert _fuzz(tmp_path, rng, 3000) > 1000
