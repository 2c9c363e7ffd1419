"""From cuda_kernels/*.cu to functions that Python calls: nvcc, a cache of its output on disk, and launches.

A kernel's parameters are read off its text, so that each argument is passed as the type that the kernel
wants. The first is by convention `int n`: the number of threads that have work (`elements`), or of rows, one
block each (`rows`).
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import EngineError
from ...resources import data_path
from . import driver

log = logging.getLogger("caffe.engine")

THREADS = 256
# Blocks of a grid-stride loop, per multiprocessor: as many as can be resident at once, a few times over.
_BLOCKS_PER_PROCESSOR = 32
# Indices are int: a grid-stride loop adds up to the number of threads to them.
MOST_ELEMENTS = 2**31 - 2**25
FLAGS = ("-O3", "--std=c++17", "-lineinfo")

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KERNEL = re.compile(r"__global__\s+void\s+(\w+)\s*\(([^)]*)\)")
_LETTERS = {"int": "i", "unsigned": "I", "float": "f", "long long": "q", "unsigned long long": "Q"}


def folder() -> Path:
    """Where the .cu files are."""
    return data_path("cuda_kernels")


def signatures(text: str) -> dict[str, str]:
    """{kernel: letters of its parameters' types, as struct has them} of a .cu text."""
    found = {}
    for name, parameters in _KERNEL.findall(_COMMENT.sub("", text)):
        letters = ""
        for parameter in parameters.split(","):
            kind = parameter.replace("const ", "").strip().rsplit(" ", 1)[0].strip()
            letters += "P" if "*" in parameter else _LETTERS[kind]
        found[name] = letters
    return found


class Function:
    """A kernel of a .cu file, to be launched on the engine's stream. name: for people, "file.kernel"."""

    def __init__(self, name: str, handle: Any, letters: str):
        self.name = name
        handle.prepare(letters)
        device = driver.device()
        self._call, self._error = handle.prepared_async_call, device.driver.Error
        self._most = device.processors * _BLOCKS_PER_PROCESSOR

    def elements(self, n: int, *arguments: Any) -> None:
        """Launch n threads, or fewer that loop. Raises EngineError where n is more than kernels count to."""
        if n >= MOST_ELEMENTS:
            raise EngineError(
                f"GPU: kernel {self.name} cannot work on {n} numbers: an array may have {MOST_ELEMENTS - 1}. "
                "Use a smaller batch_size with a larger iter_size"
            )
        if n:
            self._launch(min(-(-n // THREADS), self._most), THREADS, n, *arguments)

    def rows(self, n: int, length: int, *arguments: Any) -> None:
        """Launch n blocks, or fewer that loop, each for a row of that length: with a power of two of
        threads."""
        if n:
            threads = 32
            while threads < length and threads < THREADS:
                threads *= 2
            self._launch(min(n, self._most), threads, n, *arguments)

    def blocks(self, n: int) -> int:
        """How many blocks `elements` launches for n."""
        return max(1, min(-(-n // THREADS), self._most))

    def _launch(self, grid: int, threads: int, *arguments: Any) -> None:
        device = driver.device()
        try:
            self._call((grid, 1), (threads, 1, 1), device.stream, *arguments)
        except self._error as error:
            raise driver.failure(f"kernel {self.name}", error) from error


class Module:
    """The kernels of one .cu file, as attributes."""

    def __init__(self, stem: str):
        path = folder() / f"{stem}.cu"
        text = path.read_text(encoding="utf-8")
        device = driver.device()
        image = cubin(path, text)
        try:
            self._module = device.driver.module_from_buffer(image)
            for name, letters in signatures(text).items():
                handle = self._module.get_function(name)
                setattr(self, name, Function(f"{stem}.{name}", handle, letters))
        except device.driver.Error as error:
            raise driver.failure(f"loading {path.name}", error) from error

    def __getattr__(self, name: str) -> Function:
        raise AttributeError(f"no kernel {name}; there are {', '.join(k for k in vars(self) if k[0] != '_')}")


@cache
def module(stem: str) -> Module:
    """cuda_kernels/<stem>.cu, compiled and loaded at the first call."""
    return Module(stem)


# -- compiling
# ---------------------------------------------------------------------------------------------------------


def cubin(path: Path, text: str) -> bytes:
    """Machine code for this process's device, or PTX for its driver to compile: from the cache, else by nvcc.

    Raises EngineError when there is no nvcc, or with its message (file and line) when the text does not
    compile.
    """
    nvcc, version = _nvcc()
    kind, architecture = _target(nvcc, *driver.device().capability)
    command = [nvcc, kind, *FLAGS, f"-arch={architecture}", f"-I{path.parent}"]
    headers = b"".join(p.read_bytes() for p in sorted(path.parent.glob("*.cuh")))
    key = hashlib.sha256(headers + "\0".join([text, version, *command[1:]]).encode()).hexdigest()[:32]
    cached = _cache_folder() / f"{path.stem}-{key}.cubin"
    image = _read(cached)
    if image:
        return image
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "kernel.cubin"
        done = subprocess.run(
            [*command, "-o", str(target), str(path)], check=False, capture_output=True, text=True
        )
        if done.returncode:
            message = (done.stderr or done.stdout).strip()
            raise EngineError(f"nvcc cannot compile {path.name} for {architecture}:\n{message}")
        image = _read(target)
    if not image:
        raise EngineError(f"{nvcc} says that it has compiled {path.name}, but has written no machine code")
    _store(cached, image)
    return image


def _read(path: Path) -> bytes:
    """Machine code or PTX; nothing where there is none: no such file, or one that was harmed."""
    try:
        image = path.read_bytes()
    except OSError:
        return b""
    return image if image.startswith((b"\x7fELF", b"//")) else b""


def _store(path: Path, image: bytes) -> None:
    """Whole or not at all; without a place to write, the next process compiles again."""
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(image)
        partial.replace(path)
    except OSError as error:
        log.warning(
            "compiled kernels cannot be kept in %s (%s): set XDG_CACHE_HOME to a folder that can be written",
            path.parent,
            error,
        )


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "pycaffe" / "cuda"


@cache
def _nvcc() -> tuple[str, str]:
    """nvcc's path and version. Raises EngineError with the cure."""
    override = os.environ.get("CAFFE_NVCC", "")
    roots = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")]
    usual = [
        *(f"{root}/bin/nvcc" for root in roots if root),
        shutil.which("nvcc"),
        "/usr/local/cuda/bin/nvcc",
    ]
    candidates = [override] if override else usual
    for path in candidates:
        version = _version(path) if path else ""
        if path and version:
            return path, version
    if override:
        raise EngineError(f"CAFFE_NVCC={override} is not nvcc, or does not run: it must be the path of nvcc")
    raise EngineError(
        "the GPU engine compiles its kernels with nvcc, which is not in PATH, CUDA_HOME/bin or "
        "/usr/local/cuda/bin: install the "
        "CUDA toolkit, or set CAFFE_NVCC to nvcc's path"
    )


@cache
def _target(nvcc: str, major: int, minor: int) -> tuple[str, str]:
    """nvcc's words for a device: what to make, and for which architecture.

    A device that is newer than nvcc runs machine code for an older one of its generation, and compiles PTX of
    an older generation. Raises EngineError for one that is older than all that nvcc knows.
    """
    done = subprocess.run([nvcc, "--list-gpu-arch"], check=False, capture_output=True, text=True)
    known = [divmod(int(number), 10) for number in re.findall(r"^compute_(\d+)$", done.stdout, re.MULTILINE)]
    if not known or (major, minor) in known:  # before CUDA 11 nvcc gives no list
        return "--cubin", f"sm_{major}{minor}"
    older = [each for each in known if each < (major, minor)]
    if not older:
        least = "{}.{}".format(*min(known))
        raise EngineError(
            f"this GPU is of compute capability {major}.{minor}, and {nvcc} compiles for {least} and newer: "
            "install an older CUDA toolkit, and set CAFFE_NVCC to its nvcc"
        )
    best = max(older)
    near = best[0] == major
    return ("--cubin", "sm_{}{}".format(*best)) if near else ("--ptx", "compute_{}{}".format(*best))


def _version(path: str) -> str:
    """What nvcc at this path says of itself; "" where there is none."""
    try:
        done = subprocess.run([path, "--version"], check=False, capture_output=True, text=True)
    except (OSError, ValueError):
        return ""
    named = "cuda compilation tools" in done.stdout.lower()
    return done.stdout.strip().splitlines()[-1] if done.returncode == 0 and named else ""
