"""Files that appear whole or not at all, alone or several together."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_FORGOTTEN = 24 * 3600  # seconds after which a temporary file of another machine counts as left behind
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}\.tmp")

_writing: set[Path] = set()  # temporary files of this process


@contextlib.contextmanager
def temporary_names(*paths: str | Path) -> Iterator[tuple[Path, ...]]:
    """Names of files beside paths, to be written and closed by the caller. On success all are flushed to the
    disk and renamed in this order; on any error they are removed and paths stay as they were.

    Of several, the last is the commit of all: while it is there, they belong together. So what had its
    name before is removed first, and whoever is killed in between leaves no commit, never a mixture.
    A path that is no regular file (a pipe, /dev/null) is written directly.
    """
    targets = [_target(Path(os.fsdecode(path))) for path in paths]
    staged = {t: _temporary(t) for t in targets if t.is_file() or not t.exists()}
    _writing.update(staged.values())
    try:
        yield tuple(staged.get(t, t) for t in targets)
        for temporary in staged.values():
            _flush(temporary)
        if len(targets) > 1 and targets[-1] in staged:
            targets[-1].unlink(missing_ok=True)
        for target, temporary in staged.items():
            os.replace(temporary, target)
        for folder in dict.fromkeys(t.parent for t in staged):
            _flush_folder(folder)
    except BaseException:
        for temporary in staged.values():
            with contextlib.suppress(OSError):
                temporary.unlink()
        raise
    finally:
        _writing.difference_update(staged.values())


@contextlib.contextmanager
def temporary_name(path: str | Path) -> Iterator[Path]:
    """temporary_names for one file."""
    with temporary_names(path) as (temporary,):
        yield temporary


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """As temporary_name, with the file open for writing bytes."""
    with temporary_name(path) as temporary, open(temporary, "wb") as file:
        yield file


def check_folder(folder: str | Path, name: str) -> None:
    """Find out whether files can be made in a folder, by a temporary one for `name`. Raises OSError if not; a
    disk that is full may have room later, and is no error."""
    path = _temporary(Path(folder) / name)
    try:
        path.touch(exist_ok=False)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
            raise
    path.unlink(missing_ok=True)


def remove_leftovers(folder: str | Path, prefixes: tuple[str, ...]) -> list[Path]:
    """Remove what killed processes left of files in this folder whose names begin with one of prefixes;
    returns what was removed. Files that a living process of this machine may be writing are left alone,
    and those of other machines for a day. What cannot be removed stays."""
    removed = []
    with contextlib.suppress(OSError):
        for path in Path(folder).iterdir():
            match = _TEMPORARY.fullmatch(path.name)
            if match and match["name"].startswith(prefixes) and _is_left_over(path, match):
                with contextlib.suppress(OSError):
                    path.unlink()
                    removed.append(path)
    return removed


def _is_left_over(path: Path, match: re.Match[str]) -> bool:
    if match["host"] == _host():
        pid = int(match["pid"])
        return path.resolve() not in _writing if pid == os.getpid() else not _alive(pid)
    return time.time() - path.stat().st_mtime > _FORGOTTEN


def _alive(pid: int) -> bool:
    if os.name == "nt":  # signal 0 is Ctrl-C there
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's
    return True


def _host() -> str:
    return hashlib.blake2b(socket.gethostname().encode(), digest_size=4).hexdigest()


def _target(path: Path) -> Path:
    """The file itself where the path is a link to one. Of /dev/stdout, a link to a pipe, only the link can be
    opened."""
    return Path(os.path.realpath(path)) if path.is_file() or not path.exists() else path


def _temporary(target: Path) -> Path:
    # File systems end names at 255 bytes; the random part keeps shortened names apart.
    name = target.name.encode()[:180].decode(errors="ignore")
    return target.with_name(f".{name}.{_host()}-{os.getpid()}-{secrets.token_hex(4)}.tmp")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_folder(folder: Path) -> None:
    """Make the renaming itself durable, where the system can."""
    if os.name != "nt":
        with contextlib.suppress(OSError):
            _flush(folder)
