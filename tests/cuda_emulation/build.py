"""Builds what the emulated GPU needs, once, into a cache folder: `python tests/cuda_emulation/build.py`.

    <cache>/lib/lib{cuda,cublas,cudnn,nccl}.so.*         from the .cpp files here
    <cache>/bin/nvcc                                 runs nvcc.py
    <cache>/python                                   PyCUDA, built against CUDA's headers and that libcuda

Needs g++ and CUDA's headers; PyCUDA's source comes from the package index. The first build takes two minutes,
nearly all of it PyCUDA's; later ones nothing. Prints the folder, or the reason why there is none.

With --wheel FOLDER it makes a wheel of that PyCUDA, for this Python and a real GPU: it needs NVIDIA's driver
only where it is used, and neither cuRAND nor the driver's stub where it is made, as PyCUDA's own build does.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYCUDA = "2026.1"
SITECONF = """
BOOST_INC_DIR, BOOST_LIB_DIR, BOOST_COMPILER = [], [], "gcc"
USE_SHIPPED_BOOST = True
BOOST_PYTHON_LIBNAME, BOOST_THREAD_LIBNAME = ["boost_python"], ["boost_thread"]
CUDA_TRACE = CUDA_ENABLE_GL = CUDA_ENABLE_CURAND = False
CUDA_ROOT = {cuda!r}
CUDADRV_LIB_DIR, CUDADRV_LIBNAME = [{lib!r}], ["cuda"]
CUDART_LIB_DIR = CUDART_LIBNAME = CURAND_LIB_DIR = CURAND_LIBNAME = []
CXXFLAGS, LDFLAGS = ["-O1"], ["-Wl,--strip-all"]
"""


class Missing(Exception):
    """The emulation cannot be built here; says what is lacking."""


def cuda_root() -> Path:
    """The folder of CUDA's headers. Raises Missing."""
    for folder in (
        os.environ.get("CUDA_ROOT", ""),
        os.environ.get("CUDA_HOME", ""),
        "/usr/local/cuda",
        "/usr",
    ):
        if folder and (Path(folder) / "include" / "cuda.h").is_file():
            return Path(folder)
    raise Missing("CUDA's headers (cuda.h) are not installed; set CUDA_ROOT to their folder's parent")


def cache() -> Path:
    """Where this Python's build lies, or would lie."""
    base = os.environ.get("PYCAFFE_EMULATION", "")
    folder = Path(base) if base else Path.home() / ".cache" / "pycaffe-tests" / "cuda_emulation"
    return folder / f"{sysconfig.get_python_version()}-pycuda{PYCUDA}"


def digest() -> str:
    """Changes when a source here does."""
    parts = (p.read_bytes() for p in sorted(HERE.iterdir()) if p.suffix in (".cpp", ".h"))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def built() -> bool:
    """Is a build of these sources there, for this Python?"""
    stamp = cache() / "stamp"
    return stamp.is_file() and stamp.read_text() == digest() and (cache() / "python" / "pycuda").is_dir()


def build() -> Path:
    """Build what is missing. Raises Missing."""
    folder = cache()
    if built():
        return folder
    root = cuda_root()
    if shutil.which("g++") is None:
        raise Missing("g++ is not installed")
    for name in ("lib", "bin"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    _driver(folder / "lib", root)
    for name in ("cublas.so.13", "cudnn.so.9", "nccl.so.2"):
        source = HERE / f"lib{name.split('.')[0]}.cpp"
        target = folder / "lib" / f"lib{name}"
        soname = f"-Wl,-soname,lib{name}"
        _run("g++", "-O2", "-fPIC", "-shared", soname, "-o", target, source, "-L", folder / "lib", "-lcuda")
    script = folder / "bin" / "nvcc"
    script.write_text('#!/bin/sh\nexec "$EMULATED_NVCC_PYTHON" "$EMULATED_NVCC" "$@"\n')
    script.chmod(0o755)
    if not (folder / "python" / "pycuda").is_dir():
        _pycuda(folder, root)
    (folder / "stamp").write_text(digest())
    return folder


def _run(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run([str(c) for c in command], cwd=cwd, check=False, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _driver(lib: Path, root: Path) -> None:
    """libcuda.so.1: the functions of libcuda.cpp; all others that cuda.h names answer "not supported"."""
    include = root / "include"
    header = _run("g++", "-E", "-P", f"-I{include}", "-x", "c++", include / "cudaProfiler.h")
    names = set(re.findall(r"\b(cu[A-Z]\w*)\s*\(", header)) | {"cuCtxDetach"}
    with tempfile.TemporaryDirectory() as scratch:
        parts = Path(scratch)
        _run("g++", "-O2", "-fPIC", "-c", HERE / "libcuda.cpp", "-o", parts / "libcuda.o")
        defined = set(_run("nm", "--defined-only", parts / "libcuda.o").split())
        rest = "".join(f"int {name}(void) {{ return 801; }}\n" for name in sorted(names - defined))
        (parts / "rest.c").write_text(rest)
        _run("gcc", "-fPIC", "-c", parts / "rest.c", "-o", parts / "rest.o")
        _run(
            "g++",
            "-shared",
            "-Wl,-soname,libcuda.so.1",
            "-o",
            lib / "libcuda.so.1",
            parts / "libcuda.o",
            parts / "rest.o",
            "-ldl",
        )
    link = lib / "libcuda.so"
    link.unlink(missing_ok=True)
    link.symlink_to("libcuda.so.1")


_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def _source(scratch: str, lib: Path, root: Path) -> Path:
    """PyCUDA's source in the folder scratch, to be linked with the libcuda in lib."""
    _run(*_PIP, "download", "--no-deps", "--no-binary", "pycuda", "-d", scratch, f"pycuda=={PYCUDA}")
    with tarfile.open(next(Path(scratch).glob("*.tar.gz"))) as archive:
        archive.extractall(scratch, filter="data")
    source = Path(scratch) / f"pycuda-{PYCUDA}"
    (source / "siteconf.py").write_text(SITECONF.format(cuda=str(root), lib=str(lib)))
    return source


def wheel(target: Path) -> Path:
    """A wheel of PyCUDA in the folder target. Raises Missing."""
    root = cuda_root()
    with tempfile.TemporaryDirectory() as scratch:
        lib = Path(scratch) / "lib"
        lib.mkdir()
        _driver(lib, root)
        _run(*_PIP, "wheel", "--no-deps", "-w", target, _source(scratch, lib, root))
    return next(target.glob(f"pycuda-{PYCUDA}-*.whl"))


def _pycuda(folder: Path, root: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        source = _source(scratch, folder / "lib", root)
        target = folder / "python.new"
        shutil.rmtree(target, ignore_errors=True)
        # Without numpy among them: the tests' own is used.
        _run(*_PIP, "install", "--no-deps", "--target", target, source)
        _run(
            *_PIP,
            "install",
            "--no-deps",
            "--target",
            target,
            "pytools",
            "platformdirs",
            "typing_extensions",
            "siphash24",
        )
        target.rename(folder / "python")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What the emulated GPU needs; or a wheel of PyCUDA.")
    parser.add_argument("--wheel", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    try:
        print(wheel(options.wheel) if options.wheel else build())
    except Missing as reason:
        sys.exit(f"no emulated GPU: {reason}")
