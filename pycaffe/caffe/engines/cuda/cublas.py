"""Matrix products by cuBLAS, through its C API.

float32 products are exact to float32's rounding unless CAFFE_TF32=1 allows TensorFloat-32 (10 bits of
mantissa, several times faster on tensor cores).
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

from ...errors import EngineError
from . import driver

log = logging.getLogger("caffe.engine")

_DEFAULT_MATH, _TF32_MATH = 0, 3
_STATUS = {
    1: "not initialised",
    3: "out of memory",
    7: "invalid value",
    8: "not supported by this GPU",
    11: "mapping error",
    13: "execution failed",
    14: "internal error",
    15: "not supported",
}


def wants_tf32() -> bool:
    return os.environ.get("CAFFE_TF32", "") == "1"


def open_library(name: str, versions: tuple[int, ...], package: str) -> ctypes.CDLL:
    """lib<name>.so of the first version found: where the system looks, or among pip's packages of NVIDIA.
    Raises EngineError with what was tried and the cure."""
    tried = []
    for candidate in _candidates(name, versions):
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            tried.append(str(error))
    toolkit = "install the CUDA toolkit, or " if name == "cublas" else ""
    raise EngineError(
        f"lib{name}, which the GPU engine uses, is not found ({'; '.join(tried)}): {toolkit}pip install "
        f"{package}, or put the folder where it is into LD_LIBRARY_PATH"
    )


def _candidates(name: str, versions: tuple[int, ...]) -> Iterator[str]:
    yield from (f"lib{name}.so.{version}" for version in versions)
    yield from _from_packages(name, versions)
    any_version = ctypes.util.find_library(name)  # last, since it runs programs to find out
    if any_version:
        yield any_version


def _from_packages(name: str, versions: tuple[int, ...]) -> list[str]:
    """Paths of the library in packages like nvidia-cublas, which bring nvidia/<any>/lib."""
    patterns = [f"nvidia/*/lib/lib{name}.so.{version}" for version in versions]
    folders = [Path(folder) for folder in sys.path if folder]
    return [str(path) for pattern in patterns for folder in folders for path in sorted(folder.glob(pattern))]


class Cublas:
    """A handle of cuBLAS on the engine's stream. Matrices are in C order; addresses are integers."""

    def __init__(self) -> None:
        device = driver.device()
        self._dll = dll = open_library("cublas", (13, 12), "nvidia-cublas")
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(device.stream.handle))
        # Set in words: the default may change with the version, and this must not.
        self._call("cublasSetMathMode", self._handle, _TF32_MATH if wants_tf32() else _DEFAULT_MATH)
        version = ctypes.c_int()
        self._call("cublasGetVersion_v2", self._handle, ctypes.byref(version))
        self.version = f"{version.value // 10000}.{version.value % 10000 // 100}"
        self._one, self._zero = ctypes.c_float(1), ctypes.c_float(0)
        integer, pointer, long = ctypes.c_int, ctypes.c_void_p, ctypes.c_longlong
        dll.cublasSgemm_v2.argtypes = [
            pointer,
            integer,
            integer,
            integer,
            integer,
            integer,
            pointer,
            pointer,
            integer,
            pointer,
            integer,
            pointer,
            pointer,
            integer,
        ]
        dll.cublasSgemmStridedBatched.argtypes = [
            pointer,
            integer,
            integer,
            integer,
            integer,
            integer,
            pointer,
            pointer,
            integer,
            long,
            pointer,
            integer,
            long,
            pointer,
            pointer,
            integer,
            long,
            integer,
        ]
        log.info(
            "GPU engine: %s; cuBLAS %s%s", driver.describe(), self.version, ", TF32" if wants_tf32() else ""
        )

    def _call(self, name: str, *arguments: Any) -> None:
        self._check(name, getattr(self._dll, name)(*arguments))

    def _check(self, name: str, status: int) -> None:
        if status:
            raise EngineError(f"GPU: {name} failed: {_STATUS.get(status, status)}")

    def _factor(self, beta: float) -> Any:
        return ctypes.byref(self._one if beta else self._zero)

    def gemm(
        self,
        a: int,
        b: int,
        c: int,
        m: int,
        n: int,
        k: int,
        beta: float = 0,
        ta: bool = False,
        tb: bool = False,
    ) -> None:
        """c (m, n) = a (m, k) · b (k, n) + beta · c. ta: a is stored as (k, m); tb: b as (n, k). beta: 0
        or 1."""
        if not m * n:
            return
        driver.device()
        status = self._dll.cublasSgemm_v2(
            self._handle,
            int(tb),
            int(ta),
            n,
            m,
            k,
            ctypes.byref(self._one),
            b,
            max(1, k if tb else n),
            a,
            max(1, m if ta else k),
            self._factor(beta),
            c,
            n,
        )
        self._check("cublasSgemm", status)

    def batched(
        self,
        a: int,
        b: int,
        c: int,
        m: int,
        n: int,
        k: int,
        steps: tuple[int, int, int],
        count: int,
        beta: float = 0,
        ta: bool = False,
        tb: bool = False,
    ) -> None:
        """gemm for count matrices whose starts are `steps` floats apart in a, b and c; 0 uses the same one
        each time."""
        if not m * n * count:
            return
        driver.device()
        status = self._dll.cublasSgemmStridedBatched(
            self._handle,
            int(tb),
            int(ta),
            n,
            m,
            k,
            ctypes.byref(self._one),
            b,
            max(1, k if tb else n),
            steps[1],
            a,
            max(1, m if ta else k),
            steps[0],
            self._factor(beta),
            c,
            n,
            steps[2],
            count,
        )
        self._check("cublasSgemmStridedBatched", status)


_cublas: Cublas | None = None


def cublas() -> Cublas:
    """The process's cuBLAS, loaded at the first call. Raises EngineError with the cure."""
    global _cublas
    if _cublas is None:
        _cublas = Cublas()
    return _cublas
