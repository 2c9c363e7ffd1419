"""What Ctrl-C, a closed terminal and kill mean to a training, and to what writes databases."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import click

from caffe.callbacks import SolverAction

log = logging.getLogger("caffe.tools")

EFFECTS = {"snapshot": SolverAction.SNAPSHOT, "stop": SolverAction.STOP, "none": SolverAction.NONE}


def effect(name: str, flag: str) -> SolverAction:
    """The action that a flag's value names. Raises click.UsageError."""
    if name not in EFFECTS:
        raise click.UsageError(f"-{flag}: the signal effect '{name}' is unknown; say {', '.join(EFFECTS)}")
    return EFFECTS[name]


@contextlib.contextmanager
def end_cleanly() -> Iterator[None]:
    """While it is entered, SIGTERM and SIGHUP end the program as Ctrl-C does, by an exception, so that what
    is half done is cleaned up. (In another thread than the main one, nothing is changed.)"""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                before.setdefault(number, signal.signal(number, end))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


class SignalHandler:
    """While it is entered, SIGINT and SIGTERM, and SIGHUP, ask for their actions; `action` is for
    Solver.action. A second SIGINT or SIGTERM after a request to stop ends the program at once."""

    def __init__(self, sigint: SolverAction, sighup: SolverAction):
        self._effects = {signal.SIGINT: sigint, signal.SIGTERM: sigint}
        if hasattr(signal, "SIGHUP"):
            self._effects[signal.SIGHUP] = sighup
        self._wanted: list[SolverAction] = []
        self._stopping = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> SignalHandler:
        self._before = {number: signal.signal(number, self._receive) for number in self._effects}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        action = self._effects[signal.Signals(number)]
        if action is SolverAction.NONE or action in self._wanted and action is not SolverAction.STOP:
            return
        if action is SolverAction.STOP and number != getattr(signal, "SIGHUP", None):
            if self._stopping:
                raise SystemExit(128 + number)
            self._stopping = True
            log.info("Stopping after this iteration; Ctrl-C again ends at once, without a snapshot")
        self._wanted.append(action)

    def action(self) -> SolverAction:
        """What was asked for since the last call; one request at a time."""
        return self._wanted.pop(0) if self._wanted else SolverAction.NONE
