"""Log lines in the format of glog, which third-party tools parse, over Python's logging.

    Immdd hh:mm:ss.uuuuuu threadid file:line] message

Every module logs to the logger "caffe" or a child of it. Nothing is installed by importing: a library
stays quiet but for warnings, and programs may redirect or silence the logger as any other.
`init_log` (and the command line) print to stderr in the format above.

A log never stops a training. When whoever reads stderr is gone (`caffe train 2>&1 | tee log`, and
Ctrl-C ends tee first), the log goes silent; when the disk is full, lines are lost and counted.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import CaffeError

logger = logging.getLogger("caffe")

# glog's severities 0 to 3: its names, the letters that begin a line, and Python's levels.
SEVERITIES = ("INFO", "WARNING", "ERROR", "FATAL")
_LEVELS = (logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)

# Above every level; and the one to return to.
_SILENT = logging.CRITICAL + 1
_level_before = logging.NOTSET

# The reader of stderr will not come back: broken pipe, closed terminal, closed descriptor.
_GONE = (errno.EPIPE, errno.EIO, errno.EBADF, errno.ENXIO)


@dataclass(frozen=True)
class LogOptions:
    """glog's flags.

    logtostderr: to stderr and nowhere else. alsologtostderr: to stderr beside the files in log_dir;
    without either, stderr shows only messages of at least stderrthreshold (0 INFO … 3 FATAL).
    minloglevel: messages below are dropped. v: 1 or more shows verbose messages too. log_dir: a folder
    for log files, one per severity, with a link NAME.INFO to the latest.
    """

    logtostderr: bool = False
    alsologtostderr: bool = True
    stderrthreshold: int = 2
    minloglevel: int = 0
    v: int = 0
    log_dir: str = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> LogOptions:
        """From GLOG_logtostderr and its like. As with the original's tools, stderr shows everything
        unless the command line says otherwise."""

        def number(name: str, default: int) -> int:
            text = environment.get(f"GLOG_{name}", "")
            return int(text) if re.fullmatch(r"\s*-?\d+\s*", text) else default

        truth = environment.get("GLOG_logtostderr", "")[:1]
        return cls(
            logtostderr=truth in ("1", "t", "T", "y", "Y"),
            stderrthreshold=number("stderrthreshold", cls.stderrthreshold),
            minloglevel=number("minloglevel", cls.minloglevel),
            v=number("v", cls.v),
            log_dir=environment.get("GLOG_log_dir", ""),
        )


class GlogFormatter(logging.Formatter):
    """One record as glog writes it; a message of several lines has the prefix on the first alone."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.datetime.fromtimestamp(record.created)
        text = record.getMessage().removesuffix("\n")
        if record.exc_info:
            text += f"\n{self.formatException(record.exc_info)}"
        letter = SEVERITIES[_severity(record.levelno)][0]
        head = f"{letter}{when:%m%d %H:%M:%S.%f} {threading.get_native_id():5d}"
        return f"{head} {record.filename}:{record.lineno}] {text}"


def _severity(level: int) -> int:
    return sum(level >= bound for bound in _LEVELS[1:])


class StderrHandler(logging.Handler):
    """Writes records to stderr and survives whatever becomes of it.

    sink: where lines go instead while something else draws on the terminal (a progress bar).
    """

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(GlogFormatter())
        self.sink: Callable[[str], None] | None = None
        self._gone = False
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception:
            self.handleError(record)
            return
        self.write(text)

    def write(self, text: str) -> None:
        """Write a line as it is. Never raises."""
        if self._gone:
            return
        try:
            if self._lost:
                _to_stderr(f"({self._lost} log lines were lost)")
                self._lost = 0
            (self.sink or _to_stderr)(text)
        except OSError as error:
            if error.errno in _GONE:
                self._gone = True
                abandon_streams()
            else:
                self._lost += 1
        except RuntimeError:  # a signal's message in the middle of another line, through a buffer
            self._lost += 1
        except ValueError:  # stderr was closed
            self._gone = True


def _to_stderr(text: str) -> None:
    stream = sys.stderr
    if stream is None:  # a program without a console
        return
    line = f"{text}\n"
    if stream is not sys.__stderr__:  # captured, or a notebook's
        stream.write(line)
        stream.flush()
        return
    # Past Python's buffer: what cannot be written is not kept, to fail again at the end of the program.
    data = memoryview(line.encode("utf-8", "backslashreplace"))
    descriptor = stream.fileno()
    while data:
        data = data[os.write(descriptor, data) :]


def abandon_streams() -> None:
    """Let whatever else is printed to a pipe that nobody reads vanish, instead of failing in a layer's
    print() or when Python ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        stderr = sys.__stderr__.fileno()  # type: ignore[union-attr]
        stdout = sys.__stdout__.fileno()  # type: ignore[union-attr]
        broken = os.fstat(stderr)
        same = (os.fstat(stdout).st_dev, os.fstat(stdout).st_ino) == (broken.st_dev, broken.st_ino)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stderr)
        if same:
            os.dup2(null, stdout)
        os.close(null)


class SeverityFile(logging.Handler):
    """A log file of one severity and above, made at its first message, as glog names and links it."""

    def __init__(self, folder: Path, program: str, severity: int, failed: Callable[[str], None]):
        super().__init__(_LEVELS[severity])
        self.setFormatter(GlogFormatter())
        self._folder, self._program, self._name = folder, program, SEVERITIES[severity]
        self._failed = failed
        self._told = False
        self._descriptor: int | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode("utf-8", "backslashreplace")
        except Exception:
            self.handleError(record)
            return
        try:
            if self._descriptor is None:
                self._descriptor = self._open()
            os.write(self._descriptor, line)
            self._told = False
        except OSError as error:
            if not self._told:
                self._failed(
                    f"cannot write the log file in {self._folder}: {error.strerror}; going on without"
                )
                self._told = True

    def _open(self) -> int:
        import getpass  # only log files need these
        import socket

        now, host = datetime.datetime.now(), socket.gethostname()
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # a container that does not know its own user
            user = "invalid-user"
        name = f"{self._program}.{host}.{user}.log.{self._name}.{now:%Y%m%d-%H%M%S}.{os.getpid()}"
        descriptor = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o664)
        header = (
            f"Log file created at: {now:%Y/%m/%d %H:%M:%S}\nRunning on machine: {host}\n"
            "Log line format: [IWEF]mmdd hh:mm:ss.uuuuuu threadid file:line] msg\n"
        )
        os.write(descriptor, header.encode())
        link = self._folder / f"{self._program}.{self._name}"
        with contextlib.suppress(OSError):  # not every file system has links
            link.unlink(missing_ok=True)
            link.symlink_to(name)
        return descriptor

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        super().close()


def install(options: LogOptions, program: str = "caffe") -> StderrHandler:
    """Send the log where the options say; what an earlier call installed is replaced.

    Returns the handler for stderr. Raises CaffeError when log_dir is no folder that can be written.
    """
    lowest = _LEVELS[min(max(options.minloglevel, 0), 3)]
    if options.v > 0 and options.minloglevel <= 0:
        lowest = logging.DEBUG
    to_stderr = options.logtostderr or options.alsologtostderr
    console = StderrHandler()
    console.setLevel(lowest if to_stderr else _LEVELS[min(max(options.stderrthreshold, 0), 3)])
    handlers: list[logging.Handler] = [console]
    if (options.log_dir or not to_stderr) and not options.logtostderr:
        import tempfile

        folder = Path(options.log_dir or tempfile.gettempdir())
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise CaffeError(f"-log_dir: there is no folder '{folder}' that can be written; create it")
        handlers += [SeverityFile(folder, program, severity, console.write) for severity in range(4)]
        handlers[1].setLevel(lowest)
    for handler in logger.handlers[:]:
        if isinstance(handler, (StderrHandler, SeverityFile)):
            logger.removeHandler(handler)
            handler.close()
    for handler in handlers:
        logger.addHandler(handler)
    logger.setLevel(lowest)
    return console


def init_log(level: int | None = None, stderr: bool = True) -> None:
    """Print the log to stderr, from this severity on: 0 everything, 1 warnings, 2 errors, 3 nothing but
    what is fatal. Without a level, GLOG_minloglevel decides, and 0 without that. With stderr=False it goes
    to files in GLOG_log_dir (else the system's folder for temporary files), and errors to stderr too."""
    options = LogOptions.from_environment()
    minloglevel = options.minloglevel if level is None else int(level)
    install(
        LogOptions(
            logtostderr=stderr,
            alsologtostderr=False,
            minloglevel=minloglevel,
            v=options.v,
            log_dir=options.log_dir,
        )
    )


def set_logging_disabled(disabled: bool) -> None:
    """Silence this package's log wholly, or let it speak again as it did before."""
    global _level_before
    if disabled and logger.level != _SILENT:
        _level_before = logger.level
        logger.setLevel(_SILENT)
    elif not disabled and logger.level == _SILENT:
        logger.setLevel(_level_before)


def log(message: str) -> None:
    """Write a message of one's own into the log, as information."""
    logger.info("%s", message, stacklevel=2)


def apply_minloglevel() -> None:
    """Let GLOG_minloglevel silence the warnings that a library shows without init_log."""
    severity = LogOptions.from_environment().minloglevel
    if severity > 1:
        logger.setLevel(_LEVELS[min(severity, 3)])
