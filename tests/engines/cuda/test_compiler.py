"""Kernels are compiled once; what does not compile is told by file and line; all compile for real GPUs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from caffe.errors import EngineError
from caffe.resources import data_path
from conftest import use_gpu
from engines.cuda import support

SOURCES = sorted(data_path("cuda_kernels").glob("*.cu"))
NVCC = Path("/usr/local/cuda/bin/nvcc")
ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)


@pytest.fixture(autouse=True)
def _gpu() -> None:
    use_gpu()


def test_parameters_are_read_off_the_text() -> None:
    from caffe.engines.cuda.compiler import signatures

    text = """
    // __global__ void not_this(int n)
    extern "C" __global__ void one(int n, const float* x, float* y,
                                   unsigned long long k) {}
    extern "C" __global__ void two(int n, const int* which, float a, unsigned b) {}
    """
    assert signatures(text) == {"one": "iPPQ", "two": "iPfI"}


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.stem)
def test_every_kernel_loads(source: Path) -> None:
    from caffe.engines.cuda import compiler

    module = compiler.module(source.stem)
    for name in compiler.signatures(source.read_text(encoding="utf-8")):
        assert getattr(module, name).name == f"{source.stem}.{name}"


def test_cache_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from caffe.engines.cuda import compiler

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = data_path("cuda_kernels") / "bias.cu"
    text = source.read_text(encoding="utf-8")
    first = compiler.cubin(source, text)
    [kept] = (tmp_path / "cache" / "pycaffe" / "cuda").iterdir()
    kept.write_bytes(b"\x7fELF what stands there")
    assert compiler.cubin(source, text) == b"\x7fELF what stands there"
    assert compiler.cubin(source, text + "\n// changed") == first
    kept.write_bytes(b"")
    assert compiler.cubin(source, text) == first == kept.read_bytes()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_cache_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from caffe.engines.cuda import compiler

    tmp_path.chmod(0o500)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = data_path("cuda_kernels") / "bias.cu"
    assert compiler.cubin(source, source.read_text(encoding="utf-8"))


def test_cache_that_is_no_folder_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    from caffe.engines.cuda import compiler

    (tmp_path / "pycaffe").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = data_path("cuda_kernels") / "bias.cu"
    assert compiler.cubin(source, source.read_text(encoding="utf-8"))
    assert "compiled kernels cannot be kept in" in caplog.text


def test_compile_errors_name_file_and_line(tmp_path: Path) -> None:
    from caffe.engines.cuda import compiler

    source = tmp_path / "wrong.cu"
    source.write_text('extern "C" __global__ void f(int n) {\n    n = undefined_name;\n}\n')
    with pytest.raises(EngineError, match=r"nvcc cannot compile wrong\.cu for sm_(.|\n)*wrong\.cu.2"):
        compiler.cubin(source, source.read_text())


@pytest.fixture
def _any_compiler() -> Iterator[None]:
    from caffe.engines.cuda import compiler

    compiler._nvcc.cache_clear()
    yield
    compiler._nvcc.cache_clear()


@pytest.mark.usefixtures("_any_compiler")
@pytest.mark.parametrize("text", [None, "", "#!/bin/sh\n", "#!/bin/sh\necho hello\n", "#!/bin/sh\nexit 1\n"])
def test_a_compiler_that_does_not_run_is_named(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from caffe.engines.cuda import compiler

    path = tmp_path / "nvcc"
    if text is not None:
        path.write_text(text)
        path.chmod(0o755)
    for named in (path, tmp_path):
        monkeypatch.setenv("CAFFE_NVCC", str(named))
        with pytest.raises(EngineError, match=f"CAFFE_NVCC={named} is not nvcc, or does not run"):
            compiler._nvcc()


@pytest.mark.usefixtures("_any_compiler")
def test_a_compiler_that_writes_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from caffe.engines.cuda import compiler

    path = tmp_path / "nvcc"
    path.write_text("#!/bin/sh\necho Cuda compilation tools, release 13.0\n")
    path.chmod(0o755)
    monkeypatch.setenv("CAFFE_NVCC", str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = data_path("cuda_kernels") / "bias.cu"
    with pytest.raises(EngineError, match=r"has compiled bias\.cu, but has written no machine code"):
        compiler.cubin(source, source.read_text(encoding="utf-8"))


@pytest.mark.usefixtures("_any_compiler")
@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((9, 0), ("--cubin", "sm_90")),
        ((12, 0), ("--cubin", "sm_120")),
        ((8, 9), ("--cubin", "sm_80")),
        ((12, 9), ("--cubin", "sm_120")),
        ((11, 0), ("--ptx", "compute_100")),
        ((14, 1), ("--ptx", "compute_120")),
    ],
)
def test_what_is_made_for_a_device(capability: tuple[int, int], expected: tuple[str, str]) -> None:
    support.emulated()
    from caffe.engines.cuda import compiler

    assert compiler._target(compiler._nvcc()[0], *capability) == expected


def test_a_device_that_nvcc_does_not_know_any_more_is_told() -> None:
    support.emulated()
    from caffe.engines.cuda import compiler

    with pytest.raises(EngineError, match=r"is of compute capability 7\.0, and .*nvcc compiles for 7\.5 and"):
        compiler._target(compiler._nvcc()[0], 7, 0)


def test_a_device_newer_than_nvcc_runs_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    support.emulated()
    from caffe.engines.cuda import compiler, driver, place
    from caffe.synced_mem import SyncedMem

    monkeypatch.setattr(driver.device(), "capability", (14, 1))
    mem = SyncedMem(3)
    compiler.Module("math").fill.elements(3, place.write(mem), 2.0)
    assert mem.read()[:3].tolist() == [2, 2, 2]


def _compile(source: Path, architecture: int, target: Path) -> str:
    command = [NVCC, "--cubin", "-O3", "-std=c++17", "-Werror", "all-warnings", "-Xptxas", "-v"]
    command += [f"-arch=sm_{architecture}", "-o", target, source]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


needs_nvcc = pytest.mark.skipif(not NVCC.is_file(), reason="nvcc is not installed")


@needs_nvcc
@pytest.mark.parametrize("capability", [(9, 0), (90, 0)])
def test_nvcc_takes_the_words_for_it(capability: tuple[int, int], tmp_path: Path) -> None:
    from caffe.engines.cuda import compiler

    source, target = data_path("cuda_kernels") / "math.cu", tmp_path / "out"
    kind, architecture = compiler._target(str(NVCC), *capability)
    command = [NVCC, kind, *compiler.FLAGS, f"-arch={architecture}", "-o", target, source]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert compiler._read(target).startswith(b"//" if kind == "--ptx" else b"\x7fELF")


@needs_nvcc
@pytest.mark.parametrize("stem", ["math", "pooling", "batch_norm", "dropout"])
def test_nvcc_takes_it_without_warnings(stem: str, tmp_path: Path) -> None:
    _compile(data_path("cuda_kernels") / f"{stem}.cu", 90, tmp_path / "out.cubin")


@needs_nvcc
@pytest.mark.full
@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.stem)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvcc_for_all_architectures(source: Path, architecture: int, tmp_path: Path) -> None:
    report = _compile(source, architecture, tmp_path / "out.cubin")
    lines = [line.strip() for line in report.splitlines() if "spill" in line]
    spilled = [line for line in lines if not re.search(r"\b0 bytes spill stores, 0 bytes spill loads", line)]
    assert lines and not spilled, "registers spill to memory"
