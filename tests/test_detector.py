"""Detector: windows with and without their surroundings, by hand on small images."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

import caffe
from caffe.errors import CaffeError, DataError

NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 16 dim: 16 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
        inner_product_param { num_output: 4 weight_filler { type: "gaussian" std: 0.1 } } }
"""


@pytest.fixture
def files(rng: np.random.Generator) -> tuple[str, str]:
    Path("deploy.prototxt").write_text(NET)
    caffe.Net("deploy.prototxt", caffe.TEST).save("w.caffemodel")
    for name in ("a.png", "b.png"):
        cv2.imwrite(name, rng.integers(0, 256, (40, 30, 3), np.uint8))
    return "deploy.prototxt", "w.caffemodel"


def test_windows_are_warped_to_the_input(files) -> None:
    net = caffe.Detector(*files, mean=np.array([0.1, 0.2, 0.3]), channel_swap=(2, 1, 0))
    windows = [("a.png", [(2, 3, 12, 28), np.array([0, 0, 40, 30])]), ("b.png", [(30, 20, 45, 35)])]
    found = net.detect_windows(iter(windows))
    assert [(d["filename"], tuple(d["window"])) for d in found] == [
        ("a.png", (2, 3, 12, 28)),
        ("a.png", (0, 0, 40, 30)),
        ("b.png", (30, 20, 45, 35)),
    ]
    weights, bias = (blob.data for blob in net.params["ip"])
    for detection in found:
        y, x, bottom, right = detection["window"]
        cut = caffe.io.load_image(detection["filename"])[y:bottom, x:right]
        ready = caffe.io.resize_image(cut, (16, 16)).transpose(2, 0, 1)[::-1]
        ready = ready - np.array([0.1, 0.2, 0.3]).reshape(3, 1, 1)
        np.testing.assert_allclose(detection["prediction"], weights @ ready.ravel() + bias, atol=1e-5)
    assert net.detect_windows([("a.png", [])]) == []


def test_context_inside_the_image(files) -> None:
    """A window of 10 (its last pixel included) with half of the input for it grows to 20 about its middle."""
    net = caffe.Detector(*files, context_pad=4)
    image = caffe.io.load_image("a.png")
    wanted = caffe.io.resize_image(image[5:25, 5:25], (16, 16))
    np.testing.assert_allclose(net.crop(image, [10, 10, 19, 19]), wanted)


def test_context_outside_the_image_is_the_mean(files) -> None:
    """Rows and columns from -5 to 15, so 21 on 16 pixels: 4 of them outside, 12 for the 16 inside."""
    mean = np.array([30.0, 60.0, 90.0])  # of blue, green, red in [0, 255]
    net = caffe.Detector(*files, mean=mean, raw_scale=255, channel_swap=(2, 1, 0), context_pad=4)
    image = caffe.io.load_image("a.png")
    crop = net.crop(image, [0, 0, 9, 9])
    np.testing.assert_allclose(crop[4:, 4:], caffe.io.resize_image(image[0:15, 0:15], (12, 12)))
    for outside in (crop[:4], crop[:, :4]):
        np.testing.assert_allclose(outside, np.broadcast_to(mean[::-1] / 255, outside.shape), rtol=1e-6)
    ready = net.transformer.preprocess("data", crop)
    np.testing.assert_allclose(ready[:, :4], 0, atol=1e-4)


def test_refusals(files) -> None:
    net = caffe.Detector(*files)
    with pytest.raises(DataError, match=r"a.png, window \(50, 0, 60, 9\): .* no pixel in common"):
        net.detect_windows([("a.png", [(50, 0, 60, 9)])])
    for window in ((5, 0, 6), (0, 0, np.nan, 9), (0, "b", 5, 9)):
        with pytest.raises(DataError, match=r"a window is \(ymin, xmin, ymax, xmax\)"):
            net.detect_windows([("a.png", [window])])  # type: ignore[list-item]
    with pytest.raises(DataError, match=r"context_pad \(=8\) must be less than half"):
        caffe.Detector(*files, context_pad=8)
    with pytest.raises(CaffeError, match="selective_search_ijcv_with_python"):
        net.detect_selective_search(["a.png"])
