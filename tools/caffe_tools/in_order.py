"""Work spread over threads, with its results in the order of its items."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from caffe.execution import cpu_threads

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_order(items: Iterable[_Item], work: Callable[[_Item], _Result]) -> Iterator[tuple[_Item, _Result]]:
    """(item, work(item)) of each, worked on by as many threads as there are processors. A few items per
    thread are in memory at a time. What work raises is raised at its item's turn."""
    threads = cpu_threads()
    waiting: deque[tuple[_Item, Future[_Result]]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            waiting.append((item, pool.submit(work, item)))
            if len(waiting) > 4 * threads:
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()
    finally:
        pool.shutdown(cancel_futures=True)
