"""The emulated driver itself: it must notice what a GPU would not forgive."""

from __future__ import annotations

from pathlib import Path

import pytest

from caffe.errors import EngineError
from caffe.synced_mem import SyncedMem
from conftest import use_gpu
from cuda_emulation import build
from engines.cuda import support

HEAD = '#include "common.cuh"\n'


@pytest.fixture(autouse=True)
def _gpu() -> None:
    use_gpu()
    support.emulated()


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """load(text): the module of a .cu text."""
    from caffe.engines.cuda import compiler

    common = compiler.folder() / "common.cuh"

    def load(text: str):
        (tmp_path / "common.cuh").write_text(common.read_text())
        (tmp_path / "mine.cu").write_text(HEAD + text)
        monkeypatch.setattr(compiler, "folder", lambda: tmp_path)
        return compiler.Module("mine")

    return load


def complaint() -> str:
    driver = support.emulated()
    driver.emulated_complaint.restype = __import__("ctypes").c_char_p
    return driver.emulated_complaint().decode()


def address(count: int) -> tuple[SyncedMem, int]:
    from caffe.engines.cuda import place

    mem = SyncedMem(count)
    return mem, place.write(mem)


@pytest.mark.parametrize("statement", ["x[n] = 0", "x[0] = x[n]"])
def test_one_step_too_far(load, statement: str) -> None:
    module = load(f'extern "C" __global__ void f(int n, float* x) {{ if (threadIdx.x == 3) {statement}; }}')
    _mem, x = address(10)
    with pytest.raises(EngineError, match="kernel mine.f failed"):
        module.f.elements(10, x)
    assert "illegal memory access" in complaint() and "thread 3,0,0" in complaint()


def test_barrier_that_some_threads_leave_out(load) -> None:
    module = load(
        'extern "C" __global__ void f(int n, float* x) { if (threadIdx.x < 5) __syncthreads(); x[0] = 1; }'
    )
    _mem, x = address(1)
    with pytest.raises(EngineError, match="kernel mine.f failed"):
        module.f.rows(1, 32, x)
    assert "divergent barrier: some threads have ended" in complaint()


def test_barriers_at_different_places(load) -> None:
    module = load(
        'extern "C" __global__ void f(int n, float* x) {'
        " if (threadIdx.x < 5) { x[0] = 1; __syncthreads(); } else { __syncthreads(); } }"
    )
    _mem, x = address(1)
    with pytest.raises(EngineError, match="kernel mine.f failed"):
        module.f.rows(1, 32, x)
    assert "two different __syncthreads" in complaint()


def test_pointer_that_was_freed(load) -> None:
    module = load('extern "C" __global__ void f(int n, float* x) { x[0] = 1; }')
    mem, x = address(1)
    del mem
    with pytest.raises(EngineError, match="kernel mine.f failed"):
        module.f.rows(1, 1, x)
    assert "argument 1" in complaint() and "no live device pointer" in complaint()


def test_shared_memory_starts_as_nan_in_each_block(load) -> None:
    module = load(
        'extern "C" __global__ void f(int n, float* x) {'
        " __shared__ float s[1]; FOR_EACH_ROW(row, n) { if (threadIdx.x == 0) { x[row] = s[0]; s[0] = 1; }"
        " } }"
    )
    mem, x = address(3)
    module.f.rows(3, 1, x)
    assert (mem.read()[:3] != mem.read()[:3]).all()


def test_a_missing_barrier_shows_in_another_order(load) -> None:
    text = (
        'extern "C" __global__ void f(int n, float* x) {'
        " __shared__ float s[MOST_THREADS]; s[threadIdx.x] = threadIdx.x; BARRIER"
        " x[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x]; }"
    )
    driver = support.emulated()
    results = {}
    for barrier in ("__syncthreads();", ""):
        module = load(text.replace("BARRIER", barrier))
        for order in range(3):
            mem, x = address(32)
            driver.emulated_set_order(order, 3)
            module.f.rows(1, 32, x)
            driver.emulated_set_order(0, 0)
            results[barrier, order] = mem.read()[:32].tolist() == list(range(31, -1, -1))
    assert all(results["__syncthreads();", order] for order in range(3))
    assert not all(results["", order] for order in range(3))


@pytest.mark.network
def test_a_wheel_of_pycuda_for_another_machine(tmp_path: Path) -> None:
    """It wants of the machine no more than the driver, and so runs on the emulated one."""
    try:
        wheel = build.wheel(tmp_path)
    except build.Missing as reason:
        pytest.skip(str(reason))
    code = f"""
import sys
import zipfile
zipfile.ZipFile({str(wheel)!r}).extractall({str(tmp_path)!r})
sys.path.insert(0, {str(tmp_path)!r})
import pycuda.driver
pycuda.driver.init()
print(pycuda.driver.__file__, pycuda.driver.Device(0).name())
"""
    done = support.run_python(code)
    assert done.stdout == f"{tmp_path / 'pycuda' / 'driver.py'} emulated on the CPU\n", done.stderr
