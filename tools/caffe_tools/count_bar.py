"""A bar that shows how far a tool is, below its messages."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from caffe.logs import StderrHandler, logger

_INTERVAL = 0.2  # seconds between drawings: a bar must not cost time


@contextlib.contextmanager
def count_bar(total: int | None, unit: str = "records") -> Iterator[Callable[[int], None]]:
    """What is yielded is to be called with the number of those that are done. On a terminal it draws a bar,
    with rate and remaining time where the total is known; elsewhere it does nothing."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    progress = Progress(
        BarColumn(),
        TextColumn("{task.completed:,.0f}" + (f" of {total:,}" if total is not None else "")),
        TextColumn(f"{unit}, {{task.fields[rate]:,.0f}}/s"),
        *([TimeRemainingColumn()] if total is not None else []),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
    )
    task = progress.add_task("", total=total, rate=0.0)
    begun = time.perf_counter()
    due = begun + _INTERVAL

    def show(done: int) -> None:
        nonlocal due
        now = time.perf_counter()
        if now >= due:
            due = now + _INTERVAL
            progress.update(task, completed=done, rate=done / (now - begun), refresh=True)

    def above(line: str) -> None:
        progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    handlers = [handler for handler in logger.handlers if isinstance(handler, StderrHandler)]
    progress.start()
    for handler in handlers:
        handler.sink = above
    try:
        yield show
    finally:
        for handler in handlers:
            handler.sink = None
        with contextlib.suppress(OSError):  # a terminal that was closed
            progress.stop()
