"""A bar that shows how far a download has come."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from caffe.download import Progress


@contextlib.contextmanager
def download_bar(name: str, size: int) -> Iterator[Progress | None]:
    """On a terminal, what draws a bar for a file; else None."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=size)
        yield lambda done, _: bar.update(task, completed=done)
