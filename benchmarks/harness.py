"""The one way in which this project measures: side by side, interleaved, on a machine that is named.

A benchmark file builds its candidates and hands them over:

    results = harness.compare({"pycaffe": make_pycaffe, "torch": make_torch})
    print(harness.report("LeNet, batch 64, forward + backward", results, baseline="torch"))

Every round runs every candidate once, in an order that rotates, so that a machine that grows slower
or busier hurts all alike. Numbers are medians; a ratio is the median over rounds of the candidate's
time over the baseline's in that same round.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# Whose versions and settings can change a number.
PACKAGES = (
    "pycaffe",
    "numpy",
    "protobuf",
    "h5py",
    "lmdb",
    "opencv-python-headless",
    "onednn-cpu-gomp",
    "torch",
    "onnxruntime",
)
SETTINGS = (
    "CAFFE_ENGINE",
    "CAFFE_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "OPENBLAS_CORETYPE",
    "MKL_NUM_THREADS",
)


@dataclass(frozen=True)
class Result:
    """A candidate's seconds per call, one per round; or, without any, the reason why it did not run."""

    seconds: tuple[float, ...]
    absent: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def ratio(self, baseline: Result) -> float:
        """How many times as long as the baseline it takes."""
        pairs = zip(self.seconds, baseline.seconds, strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)


def compare(
    candidates: Mapping[str, Callable[[], Callable[[], object]]],
    *,
    rounds: int = 15,
    warm_up: int = 2,
    calls: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Result]:
    """Time every candidate `rounds` times, interleaved.

    candidates: name -> a function that sets up and returns the function to time. One that raises
    ImportError is reported as absent with that reason. Work on another device must be waited for
    inside the timed function.
    calls: how often one round calls it (for what is shorter than a millisecond).
    """
    ready: dict[str, Callable[[], object]] = {}
    absent: dict[str, str] = {}
    for name, make in candidates.items():
        try:
            ready[name] = make()
        except ImportError as error:
            absent[name] = str(error)
    for run in ready.values():
        for _ in range(warm_up):
            run()
    seconds: dict[str, list[float]] = {name: [] for name in ready}
    order = list(ready)
    for _ in range(rounds):
        for name in order:
            run = ready[name]
            start = clock()
            for _ in range(calls):
                run()
            seconds[name].append((clock() - start) / calls)
        order = order[1:] + order[:1]
    return {
        name: Result((), absent[name]) if name in absent else Result(tuple(seconds[name]))
        for name in candidates
    }


def report(title: str, results: Mapping[str, Result], baseline: str) -> str:
    """A table of medians, the slowest and fastest tenth's bounds, and ratios to the baseline."""
    base = results[baseline]
    width = max(len(name) for name in results)
    lines = [title, f"  {'':{width}}  median ms    10 % .. 90 % ms      x {baseline}"]
    for name, result in results.items():
        if result.absent:
            lines.append(f"  {name:{width}}  absent: {result.absent}")
            continue
        low, high = _tenths(result.seconds)
        ratio = "-" if base.absent else f"{result.ratio(base):.3f}"
        lines.append(
            f"  {name:{width}}  {result.median * 1e3:9.3f}  {low * 1e3:9.3f} ..{high * 1e3:9.3f}  {ratio:>7}"
        )
    return "\n".join(lines)


def _tenths(seconds: tuple[float, ...]) -> tuple[float, float]:
    ordered = sorted(seconds)
    margin = len(ordered) // 10
    return ordered[margin], ordered[-1 - margin]


def machine() -> str:
    """Everything about this machine and its software that a reader of the numbers needs."""
    versions = [f"{name} {version}" for name in PACKAGES if (version := _version(name))]
    settings = [f"{name}={os.environ[name]}" for name in SETTINGS if name in os.environ]
    lines = [
        time.strftime("date      %Y-%m-%d %H:%M %Z"),
        f"cpu       {_cpu()}, {_cores()} cores usable",
        f"memory    {_memory()}",
        f"system    {platform.platform()}, Python {platform.python_version()}",
        f"versions  {', '.join(versions)}",
        f"blas      {_blas()}",
        f"threads   {', '.join(settings) or 'no setting in the environment'}",
    ]
    if hasattr(os, "getloadavg"):
        lines.append(f"load      {os.getloadavg()[0]:.2f} over the last minute")
    return "\n".join(lines)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _from_proc(path: str, key: str) -> str:
    """The value of "key : value" in one of Linux's files; "" elsewhere."""
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() == key:
                    return value.strip()
    except OSError:
        return ""
    return ""


def _cpu() -> str:
    return _from_proc("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> str:
    kilobytes = _from_proc("/proc/meminfo", "MemTotal").split()
    return f"{int(kilobytes[0]) / 2**20:.1f} GiB" if kilobytes else "unknown"


def _blas() -> str:
    import numpy

    blas = numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{blas['name']} {blas['version']} (NumPy's)"


if __name__ == "__main__":
    sys.stdout.write(machine() + "\n")
