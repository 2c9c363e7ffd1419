"""Puts the emulated GPU in the place of a real one, in this process.

It needs a build (build.py); without one, or with a real GPU here, nothing happens, and tests that need a GPU
run on that one or are skipped with the reason.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from pathlib import Path

from cuda_emulation import build


def real_gpu() -> bool:
    """Is there a working driver with a device?"""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def activate() -> str:
    """Make the engine find the emulated driver, libraries and nvcc. Returns why that is not possible, or
    ""."""
    if library() is not None:
        return ""
    if not build.built():
        return "the emulated GPU is not built: python tests/cuda_emulation/build.py"
    folder = build.cache()
    for name, value in environment(folder).items():
        os.environ[name] = value
    sys.path.insert(0, str(folder / "python"))
    importlib.invalidate_caches()
    # Later loads by these names get what is loaded already.
    for name in ("libcuda.so.1", "libcublas.so.13", "libcudnn.so.9", "libnccl.so.2"):
        _loaded.append(ctypes.CDLL(str(folder / "lib" / name), ctypes.RTLD_GLOBAL))
    from caffe.engines.cuda import place

    # Each array is an allocation of its own, so that a step too far meets a guard page, and memory used anew
    # is NaN.
    place.POOL.rounding, place.POOL.limit = 4, 0
    return ""


def environment(folder: Path) -> dict[str, str]:
    """What a process of its own needs beside PYTHONPATH, to come onto the emulated GPU."""
    return {
        "CAFFE_NVCC": str(folder / "bin" / "nvcc"),
        "EMULATED_NVCC": str(Path(__file__).with_name("nvcc.py")),
        "EMULATED_NVCC_PYTHON": sys.executable,
        "EMULATED_NVCC_CACHE": str(folder / "kernels"),
    }


def process_environment() -> dict[str, str]:
    """Variables for a child process on the emulated GPU."""
    folder = build.cache()
    path = os.pathsep.join(filter(None, [str(folder / "python"), os.environ.get("PYTHONPATH", "")]))
    return {**environment(folder), "PYTHONPATH": path, "LD_LIBRARY_PATH": str(folder / "lib")}


_loaded: list[ctypes.CDLL] = []


def library() -> ctypes.CDLL | None:
    """The emulated driver, or None on a real GPU."""
    return _loaded[0] if _loaded else None
