"""Damaged Datums, HDF5 files and mean files: read or refused, never worse (see fuzz_data.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

KINDS = ("datum", "hdf5", "mean")


def run(kind: str, cases: int, seed: int) -> None:
    script = Path(__file__).with_name("fuzz_data.py")
    argv = [sys.executable, str(script), kind, str(cases), str(seed)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr or f"the process ended with {done.returncode}"
    refused = int(done.stdout.split()[3])
    assert cases / 3 < refused < cases  # the damage matters, and is not all that there is


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_data(kind: str) -> None:
    run(kind, 300, 1)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_data_at_length(kind: str) -> None:
    run(kind, 10_000, 2)
