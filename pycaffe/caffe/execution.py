"""ExecutionContext: what a running net hands to every kernel."""

from __future__ import annotations

import functools
import math
import os
import sys
from pathlib import Path
from typing import NoReturn

import numpy as np

from .errors import CopyError
from .random_streams import Stream


def cpu_threads() -> int:
    """CAFFE_NUM_THREADS, else the number of cores that this process may use."""
    text = os.environ.get("CAFFE_NUM_THREADS", "")
    if text.isdigit() and int(text) > 0:
        return int(text)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def memory_limit() -> int:
    """Bytes of memory that this process may use: the machine's, or less in a container."""
    limits = [sys.maxsize]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for group in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(group).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            limits.append(int(text))
    return min(limits)


def peak_memory() -> int:
    """Bytes of memory that this process has had at most; 0 where the system does not tell."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):  # getrusage counts what a parent had before exec, too
                return 1024 * int(line.split()[1])
    except OSError:
        pass  # not Linux
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def memory_text(size: int) -> str:
    """12884901888 as people say it: "12 GiB"."""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB")
    power = min(max(size, 1).bit_length() // 10, len(units) - 1)
    return f"{size / 1024**power:.4g} {units[power]}"


class ExecutionContext:
    """Scratch memory, random counters, threads and stream of one net.

    iteration, sub_iteration: address of random draws; a solver sets the first, each forward call
    advances the second. stream: an engine's queue, or None. seed: the net's, (seed, ordinal).
    """

    def __init__(self, seed: tuple[int, ...], stream: object = None):
        self.seed = seed
        self.iteration = 0
        self.sub_iteration = -1
        self.stream = stream
        self.threads = cpu_threads()
        self._scratch: dict[tuple, np.ndarray] = {}
        self._streams: dict[str, Stream] = {}

    def __reduce__(self) -> NoReturn:
        raise CopyError(
            "a layer of a net cannot be copied or pickled; its parameters can: [blob.data.copy() for blob in "
            "layer.blobs], and copies of the blobs themselves"
        )

    def scratch(self, use: str, shape: tuple[int, ...], dtype: np.dtype | type = np.float32) -> np.ndarray:
        """Host memory for use within one kernel call, shared by all layers of the net that name the
        same use; its contents are undefined at the start. It only grows."""
        size = math.prod(shape)
        key = (use, np.dtype(dtype))
        memory = self._scratch.get(key)
        if memory is None or memory.size < size:
            memory = self._scratch[key] = np.empty(size, dtype)
        return memory[:size].reshape(shape)

    def random(self, name: str) -> Stream:
        """The random stream of the layer of that name."""
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = Stream(self.seed, name)
        return stream

    def bits32(self, name: str, count: int) -> np.ndarray:
        """count random 32-bit words for this layer in this pass."""
        return self.random(name).bits32(count, self.iteration, self.sub_iteration)

    def reseed(self, seed: tuple[int, ...]) -> None:
        """Continue with the numbers of another run (restoring a snapshot)."""
        self.seed = tuple(seed)
        self._streams.clear()
