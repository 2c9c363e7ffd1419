"""What the tests of the GPU engine share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import caffe
from cuda_emulation import build, emulation

REPOSITORY = Path(__file__).resolve().parents[3]


def emulated() -> emulation.ctypes.CDLL:
    """The emulated driver; skips the test on a real GPU."""
    library = emulation.library()
    if library is None:
        pytest.skip("asks the emulated driver")
    return library


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python process of its own, on the emulated GPU unless the environment says otherwise."""
    if not build.built():
        pytest.skip("the emulated GPU is not built: python tests/cuda_emulation/build.py")
    variables = {**os.environ, **emulation.process_environment(), **environment}
    paths = [str(REPOSITORY / "pycaffe"), str(REPOSITORY / "tools"), variables.get("PYTHONPATH", "")]
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=120
    )


def engines_of(net: caffe.Net) -> dict[str, str]:
    """{layer: engine of the kernel that runs it}"""
    return {step.layer.name: step.kernel.engine for step in net._steps}
