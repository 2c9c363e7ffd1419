"""Log lines as third-party tools read them, and a log that outlives its reader and its disk."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import textwrap
import threading

import pytest

from caffe import logs
from caffe.errors import CaffeError

# What parsers in use match (their own expressions).
GLOG_LINE = re.compile(r"(\w)(\d{4} \S{8}).*]\s+(\S.*)$")


@pytest.fixture(autouse=True)
def _own_handlers():
    yield
    for handler in logs.logger.handlers[:]:
        if isinstance(handler, (logs.StderrHandler, logs.SeverityFile)):
            logs.logger.removeHandler(handler)
            handler.close()
    logs.logger.setLevel(logging.NOTSET)


def format_one(message: str, *args: object, level: int = logging.INFO) -> str:
    record = logging.LogRecord("caffe.x", level, "/somewhere/solver.py", 239, message, args, None)
    return logs.GlogFormatter().format(record)


def run_python(code: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], text=True, capture_output=True, timeout=60, **options
    )


def test_a_line_is_glogs():
    line = format_one("Iteration %d, lr = %g", 5, 0.1)
    thread = threading.get_native_id()
    assert re.fullmatch(
        rf"I\d{{4}} \d\d:\d\d:\d\d\.\d{{6}} {thread:5d} solver\.py:239\] Iteration 5, lr = 0\.1", line
    )
    severity, when, message = GLOG_LINE.match(line).groups()
    assert (severity, message) == ("I", "Iteration 5, lr = 0.1")
    assert re.fullmatch(r"\d{4} \d\d:\d\d:\d\d", when)


@pytest.mark.parametrize(
    ("level", "letter"),
    [
        (logging.DEBUG, "I"),
        (logging.INFO, "I"),
        (logging.WARNING, "W"),
        (logging.ERROR, "E"),
        (logging.CRITICAL, "F"),
    ],
)
def test_letter_of_the_severity(level, letter):
    assert format_one("x", level=level)[0] == letter


def test_only_the_first_of_several_lines_has_the_prefix():
    line = format_one("Initializing net from parameters: \n%s", 'name: "n"\nlayer {\n}\n')
    assert line.split("] ", 1)[1] == 'Initializing net from parameters: \nname: "n"\nlayer {\n}'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (1234567.0, "1.23457e+06"),
        (0.1 + 0.2, "0.3"),
        (2.0, "2"),
    ],
)
def test_numbers_have_six_digits(value, text):
    assert format_one("loss = %g", value).endswith(f"loss = {text}")


def test_stderr_and_thresholds(capsys):
    logs.install(logs.LogOptions(minloglevel=1))
    logging.getLogger("caffe.net").info("not this")
    logging.getLogger("caffe.net").warning("this")
    logs.install(logs.LogOptions(v=1))
    logging.getLogger("caffe.net").debug("verbose")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("] ")[1] for line in lines] == ["this", "verbose"]
    assert [line[0] for line in lines] == ["W", "I"]


def test_init_log_takes_its_level_from_the_environment(capsys, monkeypatch):
    monkeypatch.setenv("GLOG_minloglevel", "2")
    logs.init_log()
    logs.logger.warning("no")
    logs.logger.error("yes")
    logs.init_log(0)
    logs.log("said by a script")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("] ")[1] for line in lines] == ["yes", "said by a script"]
    assert "test_logs.py:" in lines[1]


def test_options_from_the_environment():
    options = logs.LogOptions.from_environment(
        {"GLOG_logtostderr": "1", "GLOG_v": "3", "GLOG_log_dir": "/x", "GLOG_minloglevel": "what"}
    )
    assert options == logs.LogOptions(logtostderr=True, v=3, log_dir="/x")


def test_a_library_shows_warnings_alone():
    code = """
        import logging, caffe.logs
        logging.getLogger("caffe.net").info("quiet")
        logging.getLogger("caffe.net").warning("loud")
    """
    done = run_python(code, env={k: v for k, v in os.environ.items() if not k.startswith("GLOG_")})
    assert done.stderr == "loud\n"


@pytest.mark.parametrize(
    ("value", "level"), [("0", logging.NOTSET), ("2", logging.ERROR), ("9", logging.CRITICAL)]
)
def test_minloglevel_silences_a_library(monkeypatch, value, level):
    monkeypatch.setenv("GLOG_minloglevel", value)
    logs.apply_minloglevel()
    assert logs.logger.level == level


def test_log_files_and_links(tmp_path, capsys):
    logs.install(logs.LogOptions(log_dir=str(tmp_path)))
    logs.logger.info("one")
    logs.logger.warning("two")
    logs.install(logs.LogOptions())
    info, warning = (tmp_path / "caffe.INFO", tmp_path / "caffe.WARNING")
    assert info.is_symlink() and re.fullmatch(
        r"caffe\..+\.log\.INFO\.\d{8}-\d{6}\.\d+", os.readlink(info).rpartition("/")[2]
    )
    assert [line.split("] ")[1] for line in info.read_text().splitlines()[3:]] == ["one", "two"]
    assert [line.split("] ")[1] for line in warning.read_text().splitlines()[3:]] == ["two"]
    assert info.read_text().startswith("Log file created at: ")
    assert not (tmp_path / "caffe.ERROR").exists()
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_logtostderr_writes_no_file(tmp_path):
    logs.install(logs.LogOptions(logtostderr=True, log_dir=str(tmp_path)))
    logs.logger.info("one")
    assert not list(tmp_path.iterdir())


def test_without_stderr_only_errors_are_shown(tmp_path, capsys):
    logs.install(logs.LogOptions(alsologtostderr=False, log_dir=str(tmp_path)))
    logs.logger.warning("in the file")
    logs.logger.error("on both")
    assert [line.split("] ")[1] for line in capsys.readouterr().err.splitlines()] == ["on both"]
    assert "in the file" in (tmp_path / "caffe.INFO").read_text()


def test_a_log_dir_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(CaffeError, match="-log_dir: there is no folder .*nowhere"):
        logs.install(logs.LogOptions(log_dir=str(tmp_path / "nowhere")))


def test_a_broken_pipe_ends_the_log_and_nothing_else(tmp_path):
    code = """
        import os, sys
        from caffe import logs
        read, write = os.pipe()
        os.dup2(write, 1), os.dup2(write, 2), os.close(write)
        logs.install(logs.LogOptions())
        os.close(read)
        for i in range(3):
            logs.logger.info("nobody reads this")
        # What a Python layer prints goes where the log went.
        print("nor this", flush=True)
        print("nor that", file=sys.stderr, flush=True)
        open("reached", "w").close()
    """
    done = run_python(code, cwd=tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "reached").exists()


def test_a_full_disk_loses_lines_and_counts_them(tmp_path):
    pytest.importorskip("resource")
    code = """
        import resource, sys
        from caffe import logs
        logs.install(logs.LogOptions())
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        logs.logger.info("lost")
        logs.logger.info("lost")
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        logs.logger.info("written")
    """
    with open(tmp_path / "log", "wb") as log:
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], stderr=log, timeout=60)
    assert done.returncode == 0
    first, second = (tmp_path / "log").read_text().splitlines()
    assert first == "(2 log lines were lost)"
    assert second.endswith("] written")


def test_a_log_file_on_a_full_disk_is_told_of_once(tmp_path):
    code = """
        import resource
        from caffe import logs
        logs.install(logs.LogOptions(log_dir="."))
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        logs.logger.info("one")
        logs.logger.info("two")
    """
    pytest.importorskip("resource")
    done = run_python(code, cwd=tmp_path)
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert sum("cannot write the log file" in line for line in lines) == 1
    assert len(lines) == 3
