"""A progress bar under the log, on a terminal."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from caffe.callbacks import SolverCallback
from caffe.logs import StderrHandler, logger
from caffe.solver import Solver

_INTERVAL = 0.2  # seconds between drawings: a bar must not cost time


class ProgressBar(SolverCallback):
    """Rate, remaining time and loss, while it is entered. Draws nothing when stderr is no terminal."""

    def __init__(self, solver: Solver):
        self._solver = solver
        self._next = 0.0
        self._begun = (time.perf_counter(), solver.iter)
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

    def __enter__(self) -> ProgressBar:
        if self._visible:
            self._progress.start()
            for handler in self._handlers:
                handler.sink = self._above
            self._solver.add_callback(self)
        return self

    def __exit__(self, *error: object) -> None:
        if self._visible:
            for handler in self._handlers:
                handler.sink = None
            self._progress.stop()

    @property
    def _visible(self) -> bool:
        return self._progress.console.is_terminal and not self._progress.console.is_dumb_terminal

    def _above(self, line: str) -> None:
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def on_start(self) -> None:
        now = time.perf_counter()
        if now < self._next:
            return
        self._next = now + _INTERVAL
        solver, (then, since) = self._solver, self._begun
        rate = (solver.iter - since) / (now - then)
        self._progress.update(
            self._task, completed=solver.iter, rate=rate, loss=solver.smoothed_loss, refresh=True
        )
