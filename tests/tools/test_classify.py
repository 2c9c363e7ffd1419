"""caffe classify and caffe detect: the original's scripts as commands, against the library."""

from __future__ import annotations

import csv
import sys
import types
from pathlib import Path

import cv2
import h5py
import numpy as np
import pytest

import caffe

NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 16 dim: 16 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
        inner_product_param { num_output: 4 weight_filler { type: "gaussian" std: 0.01 } } }
"""
FLAGS = ("--model_def", "deploy.prototxt", "--pretrained_model", "w.caffemodel", "--mean_file", "104,117,123")


@pytest.fixture(autouse=True)
def files(rng: np.random.Generator) -> None:
    Path("deploy.prototxt").write_text(NET)
    caffe.Net("deploy.prototxt", caffe.TEST).save("w.caffemodel")
    Path("images").mkdir()
    for name in ("b.png", "a.png"):
        cv2.imwrite(f"images/{name}", rng.integers(0, 256, (30, 20, 3), np.uint8))


def classifier(**kwargs) -> caffe.Classifier:
    mean = np.array([104.0, 117.0, 123.0])
    return caffe.Classifier(
        "deploy.prototxt", "w.caffemodel", mean=mean, raw_scale=255, channel_swap=(2, 1, 0), **kwargs
    )


def test_a_folder_of_images(cli):
    done = cli("classify", "images", "out.npy", *FLAGS, "--images_dim", "20,18", "--ext", "png")
    assert done.status == 0 and "Classifying 2 inputs." in done.out
    images = [caffe.io.load_image(f"images/{name}.png") for name in "ab"]
    np.testing.assert_allclose(np.load("out.npy"), classifier(image_dims=(20, 18)).predict(images), rtol=1e-5)


def test_one_image_from_its_middle(cli):
    assert cli("classify", "images/a.png", "out.npy", *FLAGS, "--center_only").status == 0
    wanted = classifier(image_dims=(256, 256)).predict(
        [caffe.io.load_image("images/a.png")], oversample=False
    )
    np.testing.assert_allclose(np.load("out.npy"), wanted, rtol=1e-5)


def test_arrays_and_means_of_every_kind(cli):
    np.save("in.npy", np.stack([caffe.io.load_image("images/a.png")]))
    np.save("mean.npy", np.array([104.0, 117.0, 123.0]))
    mean = caffe.io.array_to_blobproto(np.full((1, 3, 16, 16), [[[[104.0]], [[117.0]], [[123.0]]]]))
    Path("mean.binaryproto").write_bytes(mean.SerializeToString())
    results = []
    for given in ("104,117,123", "mean.npy", "mean.binaryproto"):
        assert cli("classify", "in.npy", "out.npy", *FLAGS[:4], "--mean_file", given).status == 0
        results.append(np.load("out.npy"))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5)
    np.testing.assert_allclose(results[2], results[0], rtol=1e-5)


WINDOWS = [("images/a.png", (2, 3, 12, 15)), ("images/b.png", (0, 0, 30, 20)), ("images/a.png", (5, 5, 9, 9))]


@pytest.fixture
def windows() -> list[dict]:
    rows = [",".join(map(str, (name, *window))) for name, window in WINDOWS]
    Path("windows.csv").write_text("\n".join(["filename,ymin,xmin,ymax,xmax", *rows]))
    mean = np.array([104.0, 117.0, 123.0])
    net = caffe.Detector(
        "deploy.prototxt", "w.caffemodel", mean=mean, raw_scale=255, channel_swap=(2, 1, 0), context_pad=2
    )
    a, b = [WINDOWS[0][1], WINDOWS[2][1]], [WINDOWS[1][1]]
    return net.detect_windows([("images/a.png", a), ("images/b.png", b)])


def test_windows_into_csv(cli, windows):
    done = cli("detect", "windows.csv", "out.csv", *FLAGS, "--crop_mode", "list", "--context_pad", "2")
    assert done.status == 0 and "Processed 3 windows" in done.out
    with open("out.csv", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [*rows[0]] == ["filename", "ymin", "xmin", "ymax", "xmax", "class0", "class1", "class2", "class3"]
    for row, wanted in zip(rows, windows, strict=True):
        assert row["filename"] == wanted["filename"]
        assert [float(row[name]) for name in ("ymin", "xmin", "ymax", "xmax")] == [*wanted["window"]]
        numbers = [float(row[f"class{k}"]) for k in range(4)]
        np.testing.assert_allclose(numbers, wanted["prediction"], rtol=1e-4)


def test_windows_into_hdf5(cli, windows):
    assert cli("detect", "windows.csv", "out.h5", *FLAGS, "-crop_mode=list", "-context_pad=2").status == 0
    with h5py.File("out.h5") as file:
        assert file["filename"].asstr()[:].tolist() == [found["filename"] for found in windows]
        np.testing.assert_array_equal(file["window"], [found["window"] for found in windows])
        np.testing.assert_allclose(file["prediction"], [found["prediction"] for found in windows], rtol=1e-4)


def test_of_a_mean_image_windows_get_the_mean_of_each_channel(cli, windows):
    ramp = np.linspace(-50, 50, 8 * 9).reshape(8, 9)
    np.save("mean.npy", np.stack([104 + ramp, 117 - ramp, 123 + 0 * ramp]))
    flags = (*FLAGS[:4], "--mean_file", "mean.npy", "-crop_mode=list", "-context_pad=2")
    assert cli("detect", "windows.csv", "out.h5", *flags).status == 0
    with h5py.File("out.h5") as file:
        np.testing.assert_allclose(file["prediction"], [found["prediction"] for found in windows], rtol=1e-4)


def test_windows_that_selective_search_proposes(cli, monkeypatch):
    """Names of images stand one to a line, so that they may hold blanks."""
    asked = []

    def get_windows(paths, cmd):
        asked.append((cmd, *paths))
        return [[(2, 3, 12, 15)] for _ in paths]

    package = types.ModuleType("selective_search_ijcv_with_python")
    monkeypatch.setattr(package, "get_windows", get_windows, raising=False)
    monkeypatch.setitem(sys.modules, package.__name__, package)
    Path("images/a.png").rename("images/a photo.png")
    Path("names.txt").write_text("images/a photo.png\n\nimages/b.png\n")
    assert cli("detect", "names.txt", "out.csv", *FLAGS, "-context_pad=2").status == 0
    wanted = [str(Path("images", name).absolute()) for name in ("a photo.png", "b.png")]
    assert asked == [("selective_search_rcnn", *wanted)]
    with open("out.csv", newline="") as file:
        assert [row["filename"] for row in csv.DictReader(file)] == wanted


@pytest.mark.parametrize(
    ("argv", "status", "words"),
    [
        (["classify", "images", "out.npy", *FLAGS], 1, "images holds no *.jpg"),
        (["classify", "absent.png", "out.npy", *FLAGS], 1, "absent.png"),
        (["classify", "absent.npy", "out.npy", *FLAGS], 1, "cannot read absent.npy"),
        (["classify", "images/a.png", "absent/out.npy", *FLAGS], 1, "cannot write absent/out.npy"),
        (["classify", "images/a.png", "out.npy", *FLAGS, "-images_dim", "256"], 2, "must be 2 numbers"),
        (["classify", "images/a.png", "out.npy", *FLAGS, "-channel_swap", "rgb"], 2, "whole numbers"),
        (["classify", "images/a.png", "out.npy", *FLAGS, "-mean_file", "mean.png"], 2, "mean.png"),
        (["classify", "images/a.png", "out.npy", *FLAGS, "-gpu"], 1, "-gpu 0"),
        (["classify", "images/a.png", "out.npy"], 2, "model_def"),
        (["detect", "names.txt", "out.csv", *FLAGS], 1, "selective_search_ijcv_with_python"),
        (["detect", "names.txt", "out.txt", *FLAGS], 2, "must be a .csv or .h5"),
        (["detect", "names.txt", "out.csv", *FLAGS, "-crop_mode=list"], 1, "the heading lacks filename"),
        (
            ["detect", "none.csv", "out.csv", *FLAGS, "-crop_mode=list", "-context_pad=2"],
            1,
            "lists no windows",
        ),
        (["detect", "bad.csv", "out.csv", *FLAGS, "-crop_mode=list", "-context_pad=2"], 1, "bad.csv:2"),
    ],
)
def test_refusals(cli, argv, status, words, monkeypatch):
    monkeypatch.setattr("caffe_tools.flags.gpu_absence", lambda: "there is none")
    Path("names.txt").write_text("images/a.png\n")
    Path("none.csv").write_text("filename,ymin,xmin,ymax,xmax\n")
    Path("bad.csv").write_text("filename,ymin,xmin,ymax,xmax\nimages/a.png,1,2,three,4\n")
    if argv[0] == "detect" and "-context_pad=2" not in argv:
        argv = [*argv, "-context_pad=2"]
    done = cli(*argv)
    assert done.status == status
    assert words in done.error
