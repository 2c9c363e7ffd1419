"""A web server on this machine that misbehaves as it is told."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Handler = http.server.BaseHTTPRequestHandler
Answer = Callable[["Request"], None]


class Request(Handler):
    """One request. Answers are functions of it; what they use is below."""

    protocol_version = "HTTP/1.1"
    server: FileServer

    def do_GET(self) -> None:
        self.server.requests.append((self.path, self.headers.get("Range")))
        self.close_connection = True
        answer = self.server.answers.get(self.path)
        if answer is None:
            self.send_error(404)
            return
        try:
            answer(self)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client has seen enough

    def log_message(self, format: str, *args: object) -> None:
        pass

    @property
    def start(self) -> int:
        """The first byte that is asked for."""
        asked = self.headers.get("Range")
        return int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0

    def begin(self, content: bytes, length: int | None = None, ranges: bool = True) -> bytes:
        """Send the header for content, or for the part of it that is asked for; returns what is to follow.
        length: what to claim instead of the true length."""
        start = self.start if ranges else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start if length is None else length))
        self.end_headers()
        return content[start:]


class FileServer(http.server.ThreadingHTTPServer):
    """answers: path -> what to do. requests: (path, Range header) of all that came. stop: set at the end."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.answers: dict[str, Answer] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.stop = threading.Event()
        self.scheme = "http"

    def url(self, folder: str = "") -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}/{folder}"

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that does not trust our certificate, or that went away


@contextmanager
def running(certificate: Path | None = None) -> Iterator[FileServer]:
    """A server while entered; over TLS where a file with certificate and key is given."""
    with FileServer() as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            server.scheme = "https"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.stop.set()
            server.shutdown()
            thread.join()


def whole(content: bytes) -> Answer:
    """As a good server does, parts included."""
    return lambda request: request.wfile.write(request.begin(content)) and None


def without_ranges(content: bytes) -> Answer:
    """The whole file, whatever part is asked for."""
    return lambda request: request.wfile.write(request.begin(content, ranges=False)) and None


def broken_off(content: bytes, after: int) -> Answer:
    """Closes the connection `after` bytes into each answer."""
    return lambda request: request.wfile.write(request.begin(content)[:after]) and None


def stalled(content: bytes, after: int) -> Answer:
    """Sends `after` bytes and then nothing, with the connection open."""

    def answer(request: Request) -> None:
        request.wfile.write(request.begin(content)[:after])
        request.server.stop.wait(30)

    return answer


def dripping(content: bytes, pause: float) -> Answer:
    """Sends byte after byte, with pauses."""

    def answer(request: Request) -> None:
        for byte in request.begin(content):
            request.wfile.write(bytes([byte]))
            if request.server.stop.wait(pause):
                return

    return answer


def endless(request: Request) -> None:
    """Claims no length and goes on for ever."""
    request.send_response(200)
    request.end_headers()
    while not request.server.stop.is_set():
        request.wfile.write(bytes(1 << 16))


def status(code: int) -> Answer:
    return lambda request: request.send_error(code)


def redirect(target: str) -> Answer:
    def answer(request: Request) -> None:
        request.send_response(302)
        request.send_header("Location", target)
        request.send_header("Content-Length", "0")
        request.end_headers()

    return answer


def in_turn(*answers: Answer) -> Answer:
    """One after the other; the last one from then on."""
    left = list(answers)
    return lambda request: (left.pop(0) if len(left) > 1 else left[0])(request)
