"""benchmarks/gpu.py on the emulated GPU: its numbers mean nothing there, but it must end with its table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from conftest import use_gpu
from cuda_emulation import emulation
from engines.cuda import support

LIMIT = 180  # seconds, on a machine that does much else


def start(*words: str) -> subprocess.Popen[str]:
    use_gpu()
    support.emulated()
    variables = {**os.environ, **emulation.process_environment(), "PYTHONUNBUFFERED": "1"}
    paths = [str(support.REPOSITORY / "pycaffe"), str(support.REPOSITORY / "tools"), variables["PYTHONPATH"]]
    variables["PYTHONPATH"] = os.pathsep.join(paths)
    script = support.REPOSITORY / "benchmarks" / "gpu.py"
    command = [sys.executable, str(script), "--small", "--rounds", "1", "--modes", "infer", *words]
    return subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def table_of(output: str) -> list[list[str]]:
    lines = [line for line in output.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_a_net_that_fails_leaves_the_others_in_the_table() -> None:
    process = start("--nets", "nosuchnet,lenet")
    output = process.communicate(timeout=LIMIT)[0]
    assert process.returncode == 1, output
    rows = table_of(output)
    assert [row[:3] for row in rows if row[0] == "lenet"] == [
        ["lenet", "infer", "float32"],
        ["lenet", "infer", "TF32"],
    ]
    assert all(float(row[4]) > 0 for row in rows if row[0] == "lenet")
    failed = ["nosuchnet", "infer", "float32", "failed: KeyError: 'nosuchnet'"]
    assert failed in rows and ["nosuchnet", "infer", "TF32", failed[3]] in rows
    assert "GB/s" in output


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_stopped_from_outside_it_prints_what_it_has(how: signal.Signals) -> None:
    if signal.getsignal(how) == signal.SIG_IGN:
        pytest.skip("this process ignores the signal (nohup), and so do its children")
    process = start("--nets", "lenet,cifar10_full")
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if "lenet" in line:
            break
    process.send_signal(how)
    output += process.communicate(timeout=30)[0]
    assert process.returncode == 1
    assert "stopped from outside" in output
    assert [row[:3] for row in table_of(output)][:1] == [["lenet", "infer", "float32"]]


def test_nothing_is_begun_when_the_time_is_over() -> None:
    process = start("--nets", "lenet", "--seconds", "0")
    output = process.communicate(timeout=LIMIT)[0]
    assert process.returncode == 0, output
    assert {row[3] for row in table_of(output)} == {"left out, the time is over"}


def gpu_check(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    use_gpu()
    support.emulated()
    variables = {**os.environ, **emulation.process_environment(), "PYTHON": sys.executable, **environment}
    command = [str(support.REPOSITORY / "scripts" / "gpu_check"), *words]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=LIMIT)


def test_gpu_check_tests_and_measures() -> None:
    words = "--only device_query_shows --nets lenet --modes train --rounds 1 --small".split()
    done = gpu_check(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("CUDA 13.0; GPU 0: emulated on the CPU")
    assert "1 passed" in done.stdout
    assert [row[:3] for row in table_of(done.stdout)] == [
        ["lenet", "train", "float32"],
        ["lenet", "train", "TF32"],
    ]


def test_gpu_check_says_why_it_cannot() -> None:
    done = gpu_check(EMULATED_CUDA_DEVICES="0")
    assert done.returncode == 1 and done.stdout.startswith("there is no CUDA device here")
    done = gpu_check("--only")
    assert done.returncode != 0 and "--only wants a pattern" in done.stderr
