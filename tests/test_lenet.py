"""LeNet as it stands in models/, with the digits that ship with the package in place of MNIST."""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

import caffe
from caffe.resources import data_path
from caffe_tools import main

MODEL = data_path("models", "lenet")


@pytest.fixture
def lenet(tmp_path: Path) -> Path:
    """A working folder with models/lenet, and databases in place of MNIST's."""
    folder = tmp_path / "models" / "lenet"
    shutil.copytree(MODEL, folder, ignore=shutil.ignore_patterns("*_lmdb", "lenet_iter*"))
    files = tmp_path / "files"
    files.mkdir()
    with np.load(data_path("models", "digits", "digits.npz")) as arrays:
        # Each of the 8 x 8 pixels, 0 to 16, becomes 3 x 3 of 0 to 240, with a margin of 2.
        images = np.pad(np.kron(arrays["pixels"] * 15, np.ones((3, 3), np.uint8)), ((0, 0), (2, 2), (2, 2)))
        labels = arrays["labels"]
    for name, chosen in (("train", slice(None, 1500)), ("t10k", slice(1500, None))):
        for kind, array in (("images-idx3", images[chosen]), ("labels-idx1", labels[chosen])):
            header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            (files / f"{name}-{kind}-ubyte").write_bytes(header + array.tobytes())
    assert main.run(["data", "mnist", "models/lenet", "--from", str(files)]) == 0
    return folder


def test_300_iterations(lenet: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    solver = lenet / "solver.prototxt"
    text = solver.read_text()
    for old, new in (
        ("max_iter: 10000", "max_iter: 300"),
        ("test_interval: 500", "test_interval: 300"),
        ("test_iter: 100", "test_iter: 3"),
    ):
        assert old in text
        text = text.replace(old, new)
    solver.write_text(text + "random_seed: 1\n")
    assert main.run(["train", "-solver", "models/lenet/solver.prototxt"]) == 0
    found = re.findall(r"Test net output #\d+: accuracy = (\S+)", capfd.readouterr().err)
    first, last = map(float, found)
    assert first < 0.3
    assert last > 0.9
    assert (lenet / "lenet_iter_300.caffemodel").is_file()

    net = caffe.Net(str(lenet / "deploy.prototxt"), str(lenet / "lenet_iter_300.caffemodel"), caffe.TEST)
    prob = net.forward()["prob"]
    assert prob.shape == (64, 10)
    np.testing.assert_allclose(prob.sum(axis=1), 1, rtol=1e-5)


def test_the_definitions_agree(lenet: Path) -> None:
    trained = caffe.Net(str(lenet / "train_test.prototxt"), caffe.TRAIN)
    deployed = caffe.Net(str(lenet / "deploy.prototxt"), caffe.TEST)
    shapes = {
        "conv1": [(20, 1, 5, 5), (20,)],
        "conv2": [(50, 20, 5, 5), (50,)],
        "ip1": [(500, 800), (500,)],
        "ip2": [(10, 500), (10,)],
    }
    for net in (trained, deployed):
        assert {name: [b.shape for b in blobs] for name, blobs in net.params.items()} == shapes
    assert deployed.blobs["data"].shape == (64, 1, 28, 28)
