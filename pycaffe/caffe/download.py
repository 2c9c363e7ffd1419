"""Files from public mirrors: whole and with the right checksum, or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple
from urllib.parse import urlsplit

from .atomic_file import remove_leftovers, temporary_name
from .errors import DataError
from .version import DISTRIBUTION

_log = logging.getLogger("caffe")

_ATTEMPTS = 5  # per mirror, each going on where the one before broke off
_BLOCK = 1 << 16
_SLOWEST = 1024  # bytes per second over `stall` seconds; less counts as a stall

Progress = Callable[[int, int], None]


class RemoteFile(NamedTuple):
    """A file as its publisher describes it: name, size in bytes, checksums in hexadecimal digits.

    Of the checksums, "" is one that is not stated, and a beginning will do. query: what follows the name in
    its URL.
    """

    name: str
    size: int
    md5: str = ""
    sha1: str = ""
    sha256: str = ""
    query: str = ""


class _Unusable(Exception):
    """The mirror does not give this file; asking it again is no use."""


class _BrokenOff(Exception):
    """The transfer ended too early; it may go on from there."""


class _NoPart(Exception):
    """The mirror does not send the rest of a file; it may send all of it."""


def download(
    file: RemoteFile,
    mirrors: Sequence[str],
    folder: str | Path,
    progress: Progress | None = None,
    stall: float = 30.0,
) -> Path:
    """The path of `file` in folder, fetched from the first of `mirrors` (URLs of folders, ending in /) that
    has it, unless it is there already.

    Under its name, only a file of the right size and checksum is ever seen. What an interrupted transfer
    got waits as NAME.part, and the next call goes on from there. progress(done, file.size) is called as
    bytes come in. stall: seconds without (much) data after which a connection is given up; it also bounds
    connecting. Proxies are taken from the environment, as urllib does.

    Logs each mirror that fails, with the reason. Raises DataError when all fail, with all reasons, and
    when the disk refuses.
    """
    target = Path(folder) / file.name
    reasons = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent, (file.name,))
        if target.is_file() and matches(target, file):
            return target
        for mirror in mirrors:
            try:
                _from_mirror(file, mirror, target, progress or _silent, stall)
                return target
            except _Unusable as error:
                reasons.append(f"{mirror}{file.name}: {' '.join(str(error).split())}")
                _log.warning("Cannot download %s", reasons[-1])
    except OSError as error:
        raise DataError(f"cannot write {error.filename or target}: {error.strerror or error}") from error
    raise DataError(f"cannot download {file.name}:\n" + "\n".join(reasons))


def stated_size(name: str, mirrors: Sequence[str], stall: float = 30.0) -> int:
    """The bytes of a file, by the first of the mirrors that states it. name: with its query, if it has one.

    Raises DataError when none does, with all reasons.
    """
    reasons = []
    for mirror in mirrors:
        url = mirror + name
        try:
            with _request(url, 0, stall) as response:
                length = response.headers.get("Content-Length", "")
            if length.isdigit():
                return int(length)
            reasons.append(f"{url}: it does not say how long the file is")
        except _Unusable as error:
            reasons.append(f"{url}: {' '.join(str(error).split())}")
    raise DataError(f"cannot download {name.partition('?')[0]}:\n" + "\n".join(reasons))


def _silent(done: int, size: int) -> None:
    pass


def _from_mirror(file: RemoteFile, mirror: str, target: Path, progress: Progress, stall: float) -> None:
    url, part = mirror + file.name + file.query, target.with_name(f"{target.name}.part")
    with temporary_name(target) as path:
        # Renaming makes the part ours: no second process writes to it.
        with contextlib.suppress(FileNotFoundError):
            os.replace(part, path)
        resumed = path.exists()
        try:
            _transfer(file, url, path, progress, stall)
            if resumed and not matches(path, file):
                path.unlink()  # what was there before may be the fault
                _transfer(file, url, path, progress, stall)
            if not matches(path, file):
                path.unlink()
                raise _Unusable(f"its {_stated(file)}: the file was altered")
        except BaseException:
            if path.exists() and path.stat().st_size:
                os.replace(path, part)
            raise


def _transfer(file: RemoteFile, url: str, path: Path, progress: Progress, stall: float) -> None:
    """Make path, which may hold a beginning, as long as the file."""
    with open(path, "r+b" if path.exists() else "w+b") as out:
        attempts = _ATTEMPTS
        while (before := out.seek(0, os.SEEK_END)) < file.size:
            try:
                _append(file, url, out, progress, stall)
            except _BrokenOff as error:
                attempts -= 1
                if out.tell() == before or not attempts:
                    raise _Unusable(str(error)) from None
                _log.info("%s: %s; going on from there", url, error)
            except _NoPart as error:
                attempts -= 1
                if not attempts:
                    raise _Unusable(str(error)) from None
                _restart(out)


def _append(file: RemoteFile, url: str, out: BinaryIO, progress: Progress, stall: float) -> None:
    """Ask for what is missing, and write it behind the rest."""
    with _request(url, out.tell(), stall) as response:
        if response.status == http.client.PARTIAL_CONTENT:
            start, _, total = response.headers.get("Content-Range", "").partition("/")
            if not start.startswith(f"bytes {out.tell()}-"):
                raise _NoPart("it sent another part of the file than it was asked for")
        else:
            _restart(out)  # it sends the whole file
            total = response.headers.get("Content-Length", "")
        if total.isdigit() and int(total) != file.size:
            raise _Unusable(f"it has a file of {total} bytes there instead of {file.size}")
        _copy(file, response, out, progress, stall)


def _request(url: str, start: int, stall: float) -> http.client.HTTPResponse:
    """The answer to a request for the file from byte `start` on."""
    request = urllib.request.Request(url, headers={"User-Agent": f"pycaffe/{DISTRIBUTION}"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        return urllib.request.build_opener(_SafeRedirects).open(request, timeout=stall)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and start:
            raise _NoPart("it cannot send a part of the file") from None
        raise _Unusable(f"HTTP status {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise _Unusable(str(error.reason)) from None
    except TimeoutError:
        raise _Unusable(f"no answer for {stall:g} s") from None
    except (OSError, http.client.HTTPException) as error:
        raise _Unusable(str(error) or type(error).__name__) from None
    except ValueError as error:
        raise _Unusable(f"it redirects to what is no URL ({error})") from None


def _copy(
    file: RemoteFile, response: http.client.HTTPResponse, out: BinaryIO, progress: Progress, stall: float
) -> None:
    since, before = time.monotonic(), out.tell()
    while block := _read(response, out.tell(), stall):
        out.write(block)
        if out.tell() > file.size:
            _restart(out)
            raise _Unusable(f"it sends more than the {file.size} bytes of this file")
        progress(out.tell(), file.size)
        if (now := time.monotonic()) - since > stall:
            if out.tell() - before < _SLOWEST * stall:
                raise _BrokenOff(f"less than {_SLOWEST} bytes/s, after {out.tell()} bytes")
            since, before = now, out.tell()
    if out.tell() < file.size:
        raise _BrokenOff(f"the connection was closed after {out.tell()} of {file.size} bytes")


def _read(response: http.client.HTTPResponse, done: int, stall: float) -> bytes:
    """Some bytes; none at the end."""
    try:
        return response.read1(_BLOCK)
    except TimeoutError:
        raise _BrokenOff(f"no data for {stall:g} s, after {done} bytes") from None
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenOff(f"{str(error) or type(error).__name__}, after {done} bytes") from None


def _restart(out: BinaryIO) -> None:
    out.seek(0)
    out.truncate()


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """A mirror that is asked over HTTPS does not send us on to an unprotected connection."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if urlsplit(req.full_url).scheme == "https" and urlsplit(newurl).scheme != "https":
            raise urllib.error.URLError(f"it redirects from https to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def matches(path: Path, file: RemoteFile) -> bool:
    """Whether path has the size and every stated checksum of the file."""
    if path.stat().st_size != file.size:
        return False
    return all(checksum(path, kind).startswith(wanted) for kind, wanted in _checksums(file))


def _checksums(file: RemoteFile) -> list[tuple[str, str]]:
    kinds = {"md5": file.md5, "sha1": file.sha1, "sha256": file.sha256}
    return [(kind, wanted.lower()) for kind, wanted in kinds.items() if wanted]


def _stated(file: RemoteFile) -> str:
    """The checksums, for an error: "MD5 is not 0123"."""
    return " and its ".join(f"{kind.upper()} is not {wanted}" for kind, wanted in _checksums(file))


def checksum(path: Path, kind: str) -> str:
    """Of a file, in hexadecimal digits. kind: md5, sha1 or sha256."""
    with open(path, "rb") as opened:
        return hashlib.file_digest(opened, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
