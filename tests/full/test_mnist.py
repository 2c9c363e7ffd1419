"""MNIST by its published checksums: rebuilt, served on this machine, downloaded, and put into databases."""

from __future__ import annotations

import datetime
import hashlib
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

import file_server
from caffe.db import open_db
from caffe_tools import main, public_data

# The times in the headers of the published gzip files (docs/results/lenet.md).
PACKED_AT = {
    "train-images-idx3-ubyte": datetime.datetime(1996, 11, 18, 15, 36, 26),
    "train-labels-idx1-ubyte": datetime.datetime(1996, 11, 18, 15, 36, 38),
    "t10k-images-idx3-ubyte": datetime.datetime(1998, 1, 26, 15, 7, 25),
    "t10k-labels-idx1-ubyte": datetime.datetime(1998, 1, 26, 15, 7, 48),
}


def published(path: Path, packed_at: datetime.datetime) -> bytes:
    """The gzip file that the authors of MNIST published. GNU gzip's compression is its own, not zlib's."""
    gzip = shutil.which("gzip")
    if gzip is None:
        pytest.skip("rebuilding the published files needs GNU gzip")
    data = subprocess.run([gzip, "-6", "-n", "-c", path], check=True, capture_output=True).stdout
    time = int(packed_at.replace(tzinfo=datetime.UTC).timestamp())
    name = path.name.replace("-idx", ".idx").encode() + b"\0"
    return data[:3] + b"\x08" + struct.pack("<I", time) + data[8:10] + name + data[10:]


@pytest.mark.network
def test_the_published_files_are_this_data(
    mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with file_server.running() as server:
        for file in public_data.MNIST.files:
            stem = file.name.removesuffix(".gz")
            content = published(mnist / stem, PACKED_AT[stem])
            assert (len(content), hashlib.md5(content).hexdigest()) == (file.size, file.md5)
            server.answers[f"/{file.name}"] = file_server.whole(content)
        here = public_data.MNIST._replace(mirrors=(server.url(),))
        monkeypatch.setitem(public_data.SETS, "mnist", here)
        assert main.run(["data", "mnist", str(tmp_path / "new")]) == 0
    for part, count in (("train", 60_000), ("test", 10_000)):
        with open_db(str(tmp_path / "new" / f"mnist_{part}_lmdb"), "lmdb") as db:
            assert db.entries == count
