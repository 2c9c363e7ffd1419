"""Two ranks of a process each learn what one process with the double batch learns; none outlives the
others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe.proto import caffe_pb2
from conftest import use_gpu
from cuda_emulation import build, emulation
from engines.cuda import support

NET = """
name: "digits"
layer { name: "data" type: "Data" top: "data" top: "label" transform_param { scale: 0.01 }
        data_param { source: "dataset://digits/train" backend: LMDB batch_size: BATCH } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
        inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = """
base_lr: 0.05 momentum: 0.9 weight_decay: 0.001 lr_policy: "fixed" random_seed: 3
snapshot_prefix: "here" solver_mode: GPU iter_size: 2
"""
LIMIT = 180  # seconds, on a machine that does much else


@pytest.fixture(autouse=True)
def _emulated() -> None:
    use_gpu()
    support.emulated()


def write(batch: int, extra: str = "max_iter: 6 display: 2") -> Path:
    path = Path(f"solver{batch}.prototxt")
    param = text_format.Parse(SOLVER + extra, caffe_pb2.SolverParameter())
    text_format.Parse(NET.replace("BATCH", str(batch)), param.net_param)
    path.write_text(text_format.MessageToString(param))
    return path


_started: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    yield
    for process in _started:
        process.kill()
        process.wait()
    _started.clear()


def start(*words: str, **environment: str) -> subprocess.Popen[str]:
    variables = {**os.environ, **emulation.process_environment(), "EMULATED_CUDA_DEVICES": "2", **environment}
    variables.pop("CAFFE_ENGINE", None)
    paths = [str(support.REPOSITORY / "pycaffe"), str(support.REPOSITORY / "tools"), variables["PYTHONPATH"]]
    variables["PYTHONPATH"] = os.pathsep.join(paths)
    command = [sys.executable, "-m", "caffe_tools", *words]
    _started.append(subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True))
    return _started[-1]


def weights(path: str) -> list[np.ndarray]:
    net = caffe.Net(text_format.Parse(NET.replace("BATCH", "1"), caffe_pb2.NetParameter()), caffe.TEST)
    net.copy_from(path)
    return [blob.data.copy() for blobs in net.params.values() for blob in blobs]


def test_two_ranks_are_one_process_with_the_double_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert build.built()
    done = start("train", "-solver", str(write(8)), "-gpu", "0,1")
    said = done.communicate(timeout=LIMIT)[1]
    assert done.returncode == 0, said
    two = weights("here_iter_6.caffemodel")
    monkeypatch.setenv("CAFFE_ENGINE", "reference")
    caffe.SGDSolver(str(write(16))).solve()
    one = weights("here_iter_6.caffemodel")
    for a, b in zip(two, one, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    # One rank tells of its progress.
    assert said.count("Iteration 4 (") == 1
    assert "Use GPUs 0, 1" in said


def test_all_devices_by_name() -> None:
    done = start("train", "-solver", str(write(2, "max_iter: 2 display: 1")), "-gpu", "all")
    said = done.communicate(timeout=LIMIT)[1]
    assert done.returncode == 0, said
    assert "Use GPUs 0, 1" in said


def test_a_rank_that_fails_ends_them_all() -> None:
    solver = str(write(2, "max_iter: 100000 display: 1"))
    process = start("train", "-solver", solver, "-gpu", "0,1", EMULATED_CUDA_BUSY="1")
    said = process.communicate(timeout=LIMIT)[1]
    assert process.returncode == 1
    assert "GPU 1 (emulated on the CPU) cannot be used" in said and "exclusive mode" in said
    assert "rank 1, on GPU 1, ended with status 1" in said


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        ("7", "-gpu 7: there is no GPU 7: this machine has 2, numbered from 0"),
        ("0,2", "-gpu 0,2: there is no GPU 2: this machine has 2, numbered from 0"),
        ("1,01", "-gpu 1,01: each device can be named once"),
    ],
)
def test_devices_that_are_not_there_are_told_before_anything_begins(gpu: str, said: str) -> None:
    process = start("train", "-solver", str(write(2)), "-gpu", gpu)
    output = process.communicate(timeout=LIMIT)[1]
    assert process.returncode in (1, 2)
    assert output.splitlines()[-1].startswith(f"caffe: error: {said}")
    assert "Creating" not in output and "Use GPU" not in output


def test_without_nccl_the_cure_is_named(tmp_path: Path) -> None:
    for library in (build.cache() / "lib").iterdir():
        if "nccl" not in library.name:
            (tmp_path / library.name).symlink_to(library)
    process = start("train", "-solver", str(write(2)), "-gpu", "0,1", LD_LIBRARY_PATH=str(tmp_path))
    output = process.communicate(timeout=LIMIT)[1]
    assert process.returncode == 1
    assert "libnccl.so.2: cannot open shared object file" in output
    assert "pip install nvidia-nccl-cu13" in output.splitlines()[-1]


def test_ctrl_c_writes_a_snapshot_and_ends_all() -> None:
    process = start("train", "-solver", str(write(2, "max_iter: 1000000 display: 1")), "-gpu", "0,1")
    assert process.stderr is not None
    for line in process.stderr:
        if "Iteration 2 (" in line:
            break
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=LIMIT)[1]
    assert process.returncode == 0, said
    assert list(Path().glob("here_iter_*.solverstate"))
    assert _gone("caffe_tools"), "a rank has outlived rank 0"


def _gone(word: str) -> bool:
    """Within two seconds, no child of this test's folder is left."""
    here = os.getcwd()
    for _ in range(20):
        left = [p for p in Path("/proc").glob("[0-9]*") if _is_ours(p, here)]
        if not left:
            return True
        time.sleep(0.1)
    return False


def _is_ours(process: Path, folder: str) -> bool:
    try:
        return process.name != str(os.getpid()) and os.readlink(process / "cwd") == folder
    except OSError:
        return False
