"""A progress bar under the log, for a terminal."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .callbacks import SolverCallback
from .logs import StderrHandler, logger
from .solver import Solver

_INTERVAL = 0.2  # seconds between drawings: a bar must not cost time


class ProgressBar(SolverCallback):
    """Rate, remaining time and loss of a training, on stderr, while it is entered."""

    def __init__(self, solver: Solver):
        self._solver = solver
        self._begun = time.perf_counter(), solver.iter
        self._next = self._begun[0] + _INTERVAL
        self._handlers = [h for h in logger.handlers if isinstance(h, StderrHandler)]
        # Drawn from on_start, not by a thread: nothing to be left behind.
        self._progress = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:.4g} iter/s"),
            TimeRemainingColumn(),
            TextColumn("loss = {task.fields[loss]:.6g}"),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
        )
        self._task = self._progress.add_task("", total=solver.param.max_iter, rate=0.0, loss=0.0)
        self._alive = True

    def __enter__(self) -> ProgressBar:
        self._solver.add_callback(self)
        with self._terminal():
            self._progress.start()
            for handler in self._handlers:
                handler.sink = self._above
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def _end(self) -> None:
        self._alive = False
        for handler in self._handlers:
            handler.sink = None
        with contextlib.suppress(OSError):
            self._progress.stop()

    @contextlib.contextmanager
    def _terminal(self) -> Iterator[None]:
        """A terminal that was closed ends the bar, and not the training."""
        try:
            yield
        except OSError:
            self._end()

    def _above(self, line: str) -> None:
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def on_start(self) -> None:
        now = time.perf_counter()
        if now < self._next or not self._alive:
            return
        self._next = now + _INTERVAL
        solver, (then, since) = self._solver, self._begun
        rate = (solver.iter - since) / (now - then)
        with self._terminal():
            self._progress.update(
                self._task, completed=solver.iter, rate=rate, loss=solver.smoothed_loss, refresh=True
            )
