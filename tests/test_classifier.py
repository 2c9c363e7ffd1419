"""Classifier: resized, cropped, preprocessed, classified, averaged; each against the same done by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import caffe
from caffe.errors import DataError

NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 dim: 5 dim: 6 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
        inner_product_param { num_output: 7 weight_filler { type: "gaussian" std: 0.1 } } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""


@pytest.fixture
def files() -> tuple[str, str]:
    Path("deploy.prototxt").write_text(NET)
    caffe.Net("deploy.prototxt", caffe.TEST).save("w.caffemodel")
    return "deploy.prototxt", "w.caffemodel"


@pytest.fixture
def images(rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.uniform(size=(9, 8, 3)).astype(np.float32), rng.uniform(size=(5, 12, 3)).astype(np.float32)]


def by_hand(net: caffe.Net, batch: np.ndarray) -> np.ndarray:
    weights, bias = (blob.data for blob in net.params["ip"])
    scores = batch.reshape(len(batch), -1) @ weights.T + bias
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def test_predict_from_the_middle(files, images, engine: str) -> None:
    mean = np.array([100.0, 110.0, 120.0])
    net = caffe.Classifier(
        *files, image_dims=(8, 9), mean=mean, raw_scale=255, channel_swap=(2, 1, 0), input_scale=0.01
    )
    assert isinstance(net, caffe.Net) and net.phase == caffe.TEST
    batch = [caffe.io.resize_image(im, (8, 9))[1:6, 1:7].transpose(2, 0, 1)[::-1] for im in images]
    batch = (np.stack(batch) * 255 - mean[:, None, None]) * 0.01
    np.testing.assert_allclose(net.predict(images, oversample=False), by_hand(net, batch), atol=1e-5)


def test_predict_averages_ten_crops(files, images) -> None:
    net = caffe.Classifier(*files, image_dims=(8, 9))
    crops = caffe.io.oversample([caffe.io.resize_image(im, (8, 9)) for im in images], (5, 6))
    wanted = by_hand(net, crops.transpose(0, 3, 1, 2)).reshape(2, 10, 7).mean(axis=1)
    np.testing.assert_allclose(net.predict(images), wanted, atol=1e-5)


def test_without_image_dims_images_become_the_input(files, images) -> None:
    net = caffe.Classifier(*files)
    batch = np.stack([caffe.io.resize_image(im, (5, 6)).transpose(2, 0, 1) for im in images])
    np.testing.assert_allclose(net.predict(images, oversample=False), by_hand(net, batch), atol=1e-5)
    np.testing.assert_allclose(net.predict(images[:1]).sum(), 1, rtol=1e-5)


def test_refusals(files, images) -> None:
    net = caffe.Classifier(*files)
    with pytest.raises(DataError, match="no images"):
        net.predict([])
    with pytest.raises(DataError, match=r"predict\(\[image, ...\]\), not one array of shape"):
        net.predict(images[0])  # type: ignore[arg-type]
    net.image_dims = (4, 20)
    with pytest.raises(DataError, match=r"\[4, 20\] must be at least the net's input \[5, 6\]"):
        net.predict(images, oversample=False)
    with pytest.raises(ValueError, match="Mean channels incompatible"):
        caffe.Classifier(*files, mean=np.ones(2))
