"""Files appear whole or not at all, alone or as a group; what the killed left is removed."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from caffe import atomic_file
from caffe.atomic_file import atomic_write, remove_leftovers, temporary_name, temporary_names


def names() -> list[str]:
    return sorted(os.listdir("."))


def test_a_file_appears_at_the_end() -> None:
    with atomic_write("a") as file:
        file.write(b"new")
        assert not Path("a").exists()
    assert Path("a").read_bytes() == b"new"
    assert names() == ["a"]


def test_an_error_leaves_the_old_file() -> None:
    Path("a").write_bytes(b"old")
    with pytest.raises(InterruptedError), atomic_write("a") as file:
        file.write(b"new")
        raise InterruptedError
    assert Path("a").read_bytes() == b"old"
    assert names() == ["a"]


def test_a_group_is_all_or_nothing() -> None:
    for name in ("a", "b"):
        Path(name).write_text("old")
    with pytest.raises(InterruptedError), temporary_names("a", "b") as (a, b):
        a.write_text("new")
        b.write_text("new")
        raise InterruptedError
    assert Path("a").read_text() == Path("b").read_text() == "old"
    with temporary_names("a", "b") as (a, b):
        a.write_text("new")
        b.write_text("new")
    assert Path("a").read_text() == Path("b").read_text() == "new"
    assert names() == ["a", "b"]


def test_an_old_commit_never_stands_beside_new_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between two renames: the last of the group is gone, not old."""
    for name in ("a", "b"):
        Path(name).write_text("old")

    replace = os.replace

    def killed_at_b(source: Path, target: Path) -> None:
        if target.name == "b":
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", killed_at_b)
    with pytest.raises(KeyboardInterrupt), temporary_names("a", "b") as (a, b):
        a.write_text("new")
        b.write_text("new")
    assert names() == ["a"]
    assert Path("a").read_text() == "new"


def test_a_link_stays_a_link_to_the_new_file() -> None:
    Path("folder").mkdir()
    Path("folder/real").write_text("old")
    os.symlink("folder/real", "link")
    with atomic_write("link") as file:
        file.write(b"new")
    assert Path("link").is_symlink()
    assert Path("folder/real").read_text() == "new"
    assert names() == ["folder", "link"]


@pytest.mark.skipif(not Path(os.devnull).is_char_device(), reason="no device file here")
def test_a_device_is_written_not_replaced() -> None:
    with atomic_write(os.devnull) as file:
        file.write(b"anything")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="no names of open files here")
def test_a_pipe_under_a_name_is_written() -> None:
    """As a shell's /dev/stdout before a |, and its >(command)."""
    read, write = os.pipe()
    with os.fdopen(read, "rb") as reader:
        with os.fdopen(write, "wb"), atomic_write(f"/dev/fd/{write}") as file:
            file.write(b"anything")
        assert reader.read() == b"anything"


def test_a_name_as_long_as_may_be() -> None:
    name = "n" * 255
    with atomic_write(name) as file:
        file.write(b"x")
    assert names() == [name]


def test_a_folder_that_is_not_there_is_an_oserror() -> None:
    with pytest.raises(OSError), atomic_write("nowhere/a"):
        pass


def test_leftovers_of_the_dead_are_removed_those_of_the_living_not() -> None:
    code = """if True:
        import os
        from caffe.atomic_file import temporary_name

        with temporary_name("net_iter_1.x") as temporary:
            temporary.write_text("half")
            os.kill(os.getpid(), 9)
    """
    subprocess.run([sys.executable, "-c", code], check=False)
    (left,) = names()
    Path("net_iter_1.mine.tmp").write_text("")
    Path(".hidden").write_text("")
    assert remove_leftovers(".", ("other_iter_",)) == []
    with temporary_name("net_iter_2.x") as mine:
        mine.write_text("")
        assert [p.name for p in remove_leftovers(".", ("other", "net_iter_"))] == [left]
        assert mine.exists()
    assert names() == [".hidden", "net_iter_1.mine.tmp", "net_iter_2.x"]


def test_leftovers_of_other_machines_are_removed_after_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(socket, "gethostname", lambda: "elsewhere")
        foreign = atomic_file._temporary(Path("net_iter_1.x").resolve())
    foreign.write_text("")
    assert remove_leftovers(".", ("net",)) == []
    yesterday = time.time() - 25 * 3600
    os.utime(foreign, (yesterday, yesterday))
    assert remove_leftovers(".", ("net",)) == [Path(foreign.name)]
    assert remove_leftovers("nowhere", ("net",)) == []
