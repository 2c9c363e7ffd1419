"""Finding and loading libdnnl, once per process; one CPU engine and one stream.

oneDNN comes as the wheel `onednn-cpu-gomp` on x86-64 Linux; elsewhere any libdnnl of version 3.2 or newer
that the system, conda or Homebrew installed will do.
Source: oneDNN's developer guide (C API); enum values are those of dnnl_types.h 3.x.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import EngineError, ForkError
from ...execution import cpu_threads

log = logging.getLogger("caffe.engine")

MINIMUM = (3, 2)
_RUNTIME_SYCL = 512
_ISA = {0: "default", 1: "SSE4.1", 3: "AVX", 7: "AVX2", 15: "AVX2+VNNI", 0x1F: "AVX2+VNNI2", 39: "AVX512"}
_STATUS = {
    1: "out of memory",
    2: "invalid arguments",
    3: "unimplemented",
    4: "last implementation reached",
    5: "runtime error",
    6: "not required",
}


class OneDNNError(EngineError):
    """A call of oneDNN that failed; `unimplemented` tells whether it merely has no such primitive."""

    def __init__(self, function: str, status: int):
        super().__init__(f"oneDNN: {function} failed: {_STATUS.get(status, status)}")
        self.unimplemented = status in (2, 3, 4)


class _Version(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    ]


class Library:
    """libdnnl, its engine and stream."""

    def __init__(self, path: str):
        self.path = path
        self.dll = ctypes.CDLL(path)
        self.dll.dnnl_version.restype = ctypes.POINTER(_Version)
        version = self.dll.dnnl_version().contents
        self.version = (version.major, version.minor, version.patch)
        self.waits = version.cpu_runtime == _RUNTIME_SYCL
        if self.version[:2] < MINIMUM:
            raise OSError(f"it is version {'.'.join(map(str, self.version))}, older than 3.2")
        self.engine, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("dnnl_engine_create", ctypes.byref(self.engine), 1, ctypes.c_size_t(0))
        self.call("dnnl_stream_create", ctypes.byref(self.stream), self.engine, 1)
        self.isa: int = self.dll.dnnl_get_effective_cpu_isa()
        self.channel_block = 16 if self.isa & 32 else 8
        self.execute: Any = self._first_execute
        self.set_threads, self.threads = _openmp()

    def _first_execute(self, *arguments: Any) -> int:
        """Only now are there threads that a forked child would lack."""
        self.execute = self.dll.dnnl_primitive_execute
        return self.execute(*arguments)

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.dll, name)(*arguments)
        if status:
            raise OneDNNError(name, status)


def _openmp() -> tuple[Any, int]:
    """GNU OpenMP's omp_set_num_threads, which holds for the calling thread, and how many threads there are;
    (None, 1) where there is only one, or another runtime."""
    try:
        gomp = ctypes.CDLL("libgomp.so.1")
        threads = gomp.omp_get_max_threads()
        return (gomp.omp_set_num_threads, threads) if threads > 1 else (None, 1)
    except (OSError, AttributeError):
        return None, 1


_library: Library | None = None


def load() -> Library:
    """The library; loaded at the first call. Raises EngineError with what was tried and the cure."""
    global _library
    if _library is None:
        # OpenMP reads these once, when libgomp starts; a value that the user has set stays. A worker that
        # spins for long after each primitive takes a core from whoever computes next.
        os.environ.setdefault("OMP_NUM_THREADS", str(cpu_threads()))
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
        tried = []
        for path in _candidates():
            try:
                _library = Library(path)
                break
            except (OSError, AttributeError, EngineError) as error:
                tried.append(f"{path}: {error}")
        if _library is None:
            found = "; ".join(tried) if tried else "no libdnnl was found"
            raise EngineError(
                f"the oneDNN engine is not available ({found}): pip install onednn-cpu-gomp (x86-64 Linux; "
                "it needs libgomp.so.1, Debian's package libgomp1), or install oneDNN 3.2 or newer; "
                "NumPy is used until then"
            )
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_after_fork)
        log.info("CPU engine: %s", describe())
    return _library


def _after_fork() -> None:
    """OpenMP's threads do not come along into a forked child: running a primitive there would hang."""
    if _library is not None and _library.execute is _library.dll.dnnl_primitive_execute:
        _library.execute = _refuse


def _refuse(*arguments: Any) -> int:
    raise ForkError(
        "this process was forked after a net had run on oneDNN, whose threads did not come along: use the "
        "'spawn' start method of multiprocessing, or threads, or run the first net in the child"
    )


def _candidates() -> Iterator[str]:
    override = os.environ.get("CAFFE_LIBDNNL", "")
    if override:
        yield override
        return
    names = {"darwin": ["libdnnl.3.dylib", "libdnnl.dylib"], "win32": ["dnnl.dll", "libdnnl.dll"]}.get(
        sys.platform, ["libdnnl.so.3", "libdnnl.so"]
    )
    folders = [Path(sys.prefix) / "lib", Path(sys.prefix) / "Library" / "bin", Path(sys.base_prefix) / "lib"]
    if sys.platform == "darwin":
        folders += [Path("/opt/homebrew/lib"), Path("/usr/local/lib")]
    for folder in folders:
        for name in names:
            if (folder / name).is_file():
                yield str(folder / name)
                break
    found = ctypes.util.find_library("dnnl")
    if found:
        yield found


def describe() -> str:
    """Version, instruction set, threads and path, for device_query and the log."""
    library = load()
    version = ".".join(map(str, library.version))
    isa = _ISA.get(library.isa) or ("AVX512 and newer" if library.isa & 32 else hex(library.isa))
    return f"oneDNN {version}, {isa}, {os.environ.get('OMP_NUM_THREADS', '?')} threads, {library.path}"
