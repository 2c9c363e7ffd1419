"""The command line as tests call it: in this process (`cli`, fast), or as a program of its own (`start`)."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from caffe import logs
from caffe_tools import main


@dataclass
class Done:
    """How a command ended, and what it said."""

    status: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one message of a failure."""
        before, sign, message = self.err.partition(": error: ")
        assert sign and "Traceback" not in self.err
        assert ": error: " not in message
        return message


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Done]]:
    """cli("train", "-solver", "x"): as if typed, in this process."""

    def call(*argv: str, tool: str | None = None) -> Done:
        capsys.readouterr()
        status = main.run([str(word) for word in argv], tool)
        out, err = capsys.readouterr()
        return Done(status, out, err)

    propagate = logs.logger.propagate
    yield call
    for handler in logs.logger.handlers[:]:
        if isinstance(handler, (logs.StderrHandler, logs.SeverityFile)):
            logs.logger.removeHandler(handler)
            handler.close()
    logs.logger.propagate = propagate
    logs.logger.setLevel(logging.NOTSET)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """start("train", …) runs the command line in a process of its own; what is left running is killed."""
    running: list[subprocess.Popen[str]] = []

    def begin(*argv: str, **options: object) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        process = subprocess.Popen([sys.executable, "-m", "caffe_tools", *argv], **pipes)
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


TINY_NET = """
name: "tiny"
layer {
  name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param {
    shape { dim: 4 dim: 3 } shape { dim: 4 }
    data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 }
  }
}
layer {
  name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } }
}
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
TINY_SOLVER = """
net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 10 display: 5 snapshot_prefix: "tiny"
random_seed: 1
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """The working folder with net.prototxt and solver.prototxt of a training that needs no data."""
    (tmp_path / "net.prototxt").write_text(TINY_NET)
    (tmp_path / "solver.prototxt").write_text(TINY_SOLVER)
    return tmp_path
