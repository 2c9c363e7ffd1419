"""Downloads from a server that truncates, alters, stalls, redirects and refuses."""

from __future__ import annotations

import hashlib
import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import file_server
from caffe.download import RemoteFile, download
from caffe.errors import DataError
from file_server import FileServer

CONTENT = bytes(range(256)) * 1000
FILE = RemoteFile("data.gz", len(CONTENT), hashlib.md5(CONTENT).hexdigest())
ALTERED = CONTENT[:-1] + b"\0"
STALL = 0.2


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server.running() as server:
        server.answers["/good/data.gz"] = file_server.whole(CONTENT)
        yield server


def get(server: FileServer, folder: Path, *mirrors: str, **options: object) -> Path:
    urls = [server.url(f"{m}/") for m in mirrors]
    return download(FILE, urls, folder, stall=STALL, **options)  # type: ignore[arg-type]


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_file_is_fetched_once(server: FileServer, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = get(server, tmp_path / "new" / "folder", "good", progress=lambda *x: seen.append(x))
    assert path == tmp_path / "new/folder/data.gz"
    assert path.read_bytes() == CONTENT
    assert names(path.parent) == ["data.gz"]
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert get(server, path.parent, "good") == path
    assert len(server.requests) == 1


def test_a_damaged_file_that_is_there_is_replaced(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / FILE.name).write_bytes(ALTERED)
    assert get(server, tmp_path, "good").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (file_server.status(404), "HTTP status 404 Not Found"),
        (file_server.status(500), "HTTP status 500 Internal Server Error"),
        (file_server.status(416), "HTTP status 416"),
        (file_server.whole(CONTENT[:1000]), "it has a file of 1000 bytes there instead of 256000"),
        (file_server.whole(CONTENT + b"x"), "it has a file of 256001 bytes there instead of 256000"),
        (file_server.whole(ALTERED), f"its MD5 is not {FILE.md5}: the file was altered"),
        (file_server.broken_off(CONTENT, 0), "the connection was closed after 0 of 256000 bytes"),
        (file_server.broken_off(CONTENT, 1000), "the connection was closed after 5000 of 256000 bytes"),
        (file_server.stalled(CONTENT, 0), "no data for 0.2 s, after 0 bytes"),
        (file_server.stalled(CONTENT, 1000), "no data for 0.2 s, after 5000 bytes"),
        (file_server.dripping(CONTENT, 0.05), "less than 1024 bytes/s, after"),
        (file_server.endless, "it sends more than the 256000 bytes of this file"),
        (file_server.redirect("/bad/data.gz"), "redirect error that would lead to an infinite loop"),
        (file_server.redirect("/nowhere"), "HTTP status 404"),
        (file_server.redirect("file:///etc/passwd"), "'file:///etc/passwd' is not allowed"),
        (file_server.redirect("http://[bad/"), "it redirects to what is no URL (Invalid IPv6 URL)"),
        (file_server.redirect("http://b\xfcd/"), "it redirects to what is no URL ("),
        (lambda request: request.wfile.write(b"nonsense\r\n\r\n"), "nonsense"),
        (lambda request: None, "Remote end closed connection without response"),
        (lambda request: request.server.stop.wait(30), "no answer for 0.2 s"),
    ],
)
def test_a_mirror_that_fails_is_named_and_the_next_is_tried(
    server: FileServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, answer: object, reason: str
) -> None:
    server.answers["/bad/data.gz"] = answer  # type: ignore[assignment]
    with pytest.raises(DataError) as raised:
        get(server, tmp_path, "bad")
    first, second = str(raised.value).split("\n")
    assert first == "cannot download data.gz:"
    assert second.startswith(f"{server.url('bad/')}data.gz: ")
    assert reason in second
    assert FILE.name not in names(tmp_path)
    caplog.clear()
    assert get(server, tmp_path, "bad", "good").read_bytes() == CONTENT
    (warning,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert warning.message.startswith(f"Cannot download {server.url('bad/')}data.gz: ")
    assert names(tmp_path) == ["data.gz"]


def test_all_mirrors_that_fail_are_listed(server: FileServer, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(DataError, match=r"status 404[^\n]*\n[^\n]*refused[^\n]*$"):
        download(FILE, [server.url("missing/"), f"http://127.0.0.1:{port}/"], tmp_path, stall=STALL)
    assert names(tmp_path) == []


def test_a_broken_transfer_goes_on_where_it_stopped(server: FileServer, tmp_path: Path) -> None:
    server.answers["/flaky/data.gz"] = file_server.in_turn(
        file_server.broken_off(CONTENT, 100_000),
        file_server.stalled(CONTENT, 50_000),
        file_server.whole(CONTENT),
    )
    assert get(server, tmp_path, "flaky").read_bytes() == CONTENT
    assert [asked for _, asked in server.requests] == [None, "bytes=100000-", "bytes=150000-"]


def test_another_mirror_goes_on_where_one_stopped(server: FileServer, tmp_path: Path) -> None:
    server.answers["/flaky/data.gz"] = file_server.in_turn(
        file_server.broken_off(CONTENT, 100_000), file_server.status(503)
    )
    assert get(server, tmp_path, "flaky", "good").read_bytes() == CONTENT
    assert server.requests[-1] == ("/good/data.gz", "bytes=100000-")


def test_the_next_run_goes_on_where_an_interrupted_one_stopped(server: FileServer, tmp_path: Path) -> None:
    def interrupt(done: int, size: int) -> None:
        if done > 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(server, tmp_path, "good", progress=interrupt)
    assert names(tmp_path) == ["data.gz.part"]
    got = (tmp_path / "data.gz.part").stat().st_size
    assert got > 100_000
    assert get(server, tmp_path, "good").read_bytes() == CONTENT
    assert server.requests[-1] == ("/good/data.gz", f"bytes={got}-")
    assert names(tmp_path) == ["data.gz"]


def _wrong_part(request: file_server.Request) -> None:
    request.send_response(206)
    request.send_header("Content-Range", f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}")
    request.send_header("Content-Length", str(len(CONTENT)))
    request.end_headers()
    request.wfile.write(CONTENT)


@pytest.mark.parametrize(
    "answer", [file_server.without_ranges(CONTENT), file_server.status(416), _wrong_part]
)
def test_a_mirror_that_gives_no_parts_gives_the_whole(
    server: FileServer, tmp_path: Path, answer: file_server.Answer
) -> None:
    (tmp_path / "data.gz.part").write_bytes(CONTENT[:1000])
    server.answers["/plain/data.gz"] = file_server.in_turn(answer, file_server.whole(CONTENT))
    assert get(server, tmp_path, "plain").read_bytes() == CONTENT
    assert server.requests[0] == ("/plain/data.gz", "bytes=1000-")


@pytest.mark.parametrize("part", [b"of another file", ALTERED, CONTENT + b"x", b""], ids=len)
def test_a_wrong_beginning_is_thrown_away(server: FileServer, tmp_path: Path, part: bytes) -> None:
    (tmp_path / "data.gz.part").write_bytes(part)
    assert get(server, tmp_path, "good").read_bytes() == CONTENT
    assert names(tmp_path) == ["data.gz"]


def test_a_wrong_beginning_does_not_outlive_a_mirror_that_fails(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "data.gz.part").write_bytes(ALTERED[:1000])
    server.answers["/bad/data.gz"] = file_server.whole(ALTERED)
    with pytest.raises(DataError, match="altered"):
        get(server, tmp_path, "bad")
    assert names(tmp_path) == []


def test_redirects_are_followed(server: FileServer, tmp_path: Path) -> None:
    server.answers["/old/data.gz"] = file_server.redirect("/good/data.gz")
    (tmp_path / "data.gz.part").write_bytes(CONTENT[:1000])
    assert get(server, tmp_path, "old").read_bytes() == CONTENT
    assert server.requests == [("/old/data.gz", "bytes=1000-"), ("/good/data.gz", "bytes=1000-")]


def test_what_a_killed_process_left_is_cleared_away(server: FileServer, tmp_path: Path) -> None:
    script = (
        "import os; from caffe.download import RemoteFile, download\n"
        f"download(RemoteFile(*{tuple(FILE)}), [{server.url('good/')!r}], {str(tmp_path)!r},"
        " lambda done, size: os.kill(os.getpid(), 9))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == -9
    assert len(names(tmp_path)) == 1 and FILE.name not in names(tmp_path)
    get(server, tmp_path, "good")
    assert names(tmp_path) == [FILE.name]


def test_several_at_once_do_not_disturb_each_other(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "data.gz.part").write_bytes(CONTENT[:1000])
    with ThreadPoolExecutor(4) as pool:
        paths = [pool.submit(get, server, tmp_path, "good") for _ in range(4)]
    assert {path.result().read_bytes() for path in paths} == {CONTENT}
    assert names(tmp_path) == [FILE.name]


def test_a_disk_that_takes_no_more(server: FileServer, tmp_path: Path) -> None:
    script = (
        "import resource, signal; from caffe.download import RemoteFile, download\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        f"download(RemoteFile(*{tuple(FILE)}), [{server.url('good/')!r}], {str(tmp_path)!r})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines()[-1].startswith("caffe.errors.DataError: cannot write ")
    assert FILE.name not in names(tmp_path)
    assert get(server, tmp_path, "good").read_bytes() == CONTENT


def test_a_folder_that_is_a_file(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot write .*(exists|Not a directory)"):
        get(server, tmp_path / "file", "good")
    assert server.requests == []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that nobody vouches for, with its key."""
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost".split()
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "certificate.pem"]
    try:
        subprocess.run(command, cwd=path.parent, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("making a certificate needs the openssl program")
    path.write_text("".join((path.parent / n).read_text() for n in ("certificate.pem", "key.pem")))
    return path


def test_https(
    server: FileServer, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with file_server.running(certificate) as secure:
        secure.answers["/good/data.gz"] = file_server.whole(CONTENT)
        secure.answers["/down/data.gz"] = file_server.redirect(f"{server.url('good/')}data.gz")
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        with pytest.raises(DataError, match="certificate verify failed"):
            get(secure, tmp_path, "good")
        assert secure.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with pytest.raises(DataError, match=f"it redirects from https to {server.url('good/')}"):
            get(secure, tmp_path, "down")
        assert server.requests == []
        assert get(secure, tmp_path, "good").read_bytes() == CONTENT
