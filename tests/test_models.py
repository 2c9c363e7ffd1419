"""The reference models: written by their scripts, built in both phases, of the published size."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import h5py
import numpy as np
import pytest

import caffe
from caffe import kernels, models
from caffe.errors import DataError, NetError
from caffe.proto import caffe_pb2
from caffe.resources import data_path
from caffe.upgrade_proto import read_net_upgraded, read_solver_upgraded
from caffe_tools.public_models import WEIGHTS
from model_shapes import data_shapes, stages, without_fillers

FOLDER = data_path("models")
NAMES = models.list()
DOCUMENT = (Path(__file__).parent.parent / "docs" / "models.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def write() -> Iterator[ModuleType]:
    """models/write.py, as when it is run as a program: its folder is where imports are sought first."""
    sys.path.insert(0, str(FOLDER))
    try:
        import write  # pyright: ignore[reportMissingImports]

        yield write
    finally:
        sys.path.remove(str(FOLDER))
        for name in [n for n in sys.modules if n == "write" or n.split(".")[0] == "common"]:
            del sys.modules[name]


@pytest.fixture(autouse=True)
def _shapes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines would prepare themselves for nets that are only built."""
    monkeypatch.setenv("CAFFE_ENGINE", kernels.REFERENCE)


def definition(name: str) -> str:
    """The file name of the net to train; the smallest models have kept the name of Caffe's examples."""
    return "train_test.prototxt" if name in ("digits", "lenet") else "train_val.prototxt"


def train_val(name: str) -> caffe_pb2.NetParameter:
    return read_net_upgraded(str(models.path(name, definition(name))))


def parameters(net: caffe.Net) -> dict[str, list[tuple[int, ...]]]:
    return {name: [tuple(blob.shape) for blob in blobs] for name, blobs in net.params.items()}


@pytest.mark.parametrize("name", NAMES)
def test_the_files_are_what_the_script_writes_and_mean_it(name: str, write: ModuleType) -> None:
    messages = write.messages(name)
    assert set(messages) == {definition(name), "deploy.prototxt", "solver.prototxt"}
    for file, (heading, message) in messages.items():
        path = FOLDER / name / file
        assert path.read_text(encoding="utf-8") == write.prototxt(message, heading)
        if file == "solver.prototxt":
            back = read_solver_upgraded(path)
            back.net = message.net  # which was found beside the solver
        else:
            back = read_net_upgraded(path)
        assert back == message


def test_every_script_has_its_model(write: ModuleType) -> None:
    assert write.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_builds_in_both_phases_and_goes_into_use(name: str) -> None:
    used = caffe.Net(str(models.path(name, "deploy.prototxt")), caffe.TEST)
    net = without_fillers(models.without_data(train_val(name), data_shapes(name, 2)))
    trained = caffe.Net(net, caffe.TRAIN)
    tested = caffe.Net(net, caffe.TEST, stages=stages(name))
    assert any("loss" in output for output in trained.outputs)
    assert parameters(trained) == parameters(tested)
    # What is trained, and what its snapshots are loaded into. R-CNN's last layer is replaced by hand.
    into, what = parameters(used), parameters(trained)
    if name == "bvlc_reference_rcnn_ilsvrc13":
        del into["fc-rcnn"]
    assert into.items() <= what.items()


@pytest.mark.parametrize("name", NAMES)
def test_the_solver_belongs_to_the_model(name: str) -> None:
    solver = read_solver_upgraded(str(models.path(name, "solver.prototxt")))
    assert Path(solver.net).samefile(FOLDER / name / Path(solver.net).name)
    assert solver.solver_mode == caffe_pb2.SolverParameter.CPU
    assert solver.snapshot_prefix == ("digits_cnn" if name == "digits" else f"models/{name}/{name}")
    test_nets = max(1, len(solver.test_state))
    assert len(solver.test_iter) == test_nets and solver.test_interval


@pytest.mark.parametrize("name", NAMES)
def test_readme_and_table_state_what_is_computed(name: str) -> None:
    text = models.path(name, "readme.md").read_text(encoding="utf-8")
    assert text.startswith("# ")
    summary = models.summary(name)
    numbers = {f"{summary.parameters:,}", f"{summary.multiply_adds:,}"}
    assert all(f"{number} computed" in text for number in numbers)
    assert all(f"| {row} |" in text for row in ("input", "expected accuracy"))
    assert "not trained here" in text or "easured" in text
    row = next(line for line in DOCUMENT.splitlines() if line.startswith(f"| [{name}]("))
    cells = [cell.strip() for cell in row.split("|")]
    assert {cells[2], cells[4]} == numbers
    assert ("nor were the public weights downloaded" in text) == (name in WEIGHTS)
    (accuracy,) = re.findall(r"^\| expected accuracy \| (.*) \|$", text, re.MULTILINE)
    assert figures(cells[6]) == figures(accuracy)
    learned, blobs = 4e-6 * summary.parameters, 1e-6 * summary.memory / summary.items
    assert cells[7] == f"{learned:,.1f} + {blobs:,.1f}"


def figures(text: str) -> list[str]:
    """Decimal numbers, but for those in the addresses of links."""
    return re.findall(r"\d+\.\d+", re.sub(r"\]\([^)]*\)", "", text))


# Learned parameters, as published to the last digit; where, says docs/models.md.
@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("bvlc_googlenet", 6_998_552),
        ("vgg16", 138_357_544),
        ("vgg19", 143_667_240),
        ("squeezenet_v1.0", 1_248_424),
        ("squeezenet_v1.1", 1_235_496),
        # torchvision's 11,689,512 and a projection with its normalization: 64 · 64 + 2 · 64
        ("resnet18", 11_689_512 + 4_224),
        # torchvision's 25,557,032 and the bias of conv1
        ("resnet50", 25_557_032 + 64),
        ("resnet101", 44_549_160),
        ("resnet152", 60_192_808),
        ("mobilenet_v1", 4_231_976),
        # torchvision's 3,504,872 and an expansion of 32 to 32 channels with its normalization
        ("mobilenet_v2", 3_504_872 + 32 * 32 + 2 * 32),
        ("densenet121", 7_978_856),
        # Keras's 23,851,784, whose three numbers a channel of normalization are here two; 17,216 channels
        ("inception_v3", 23_851_784 - 17_216),
    ],
)
def test_parameters_as_published(name: str, published: int) -> None:
    assert models.summary(name).parameters == published


# Multiply-adds in units of 10^9, as the papers state them, to their last digit.
@pytest.mark.parametrize(
    ("name", "published", "places"),
    [
        ("bvlc_alexnet", 0.724, 3),  # Sze and others, 2017, table II
        ("vgg16", 15.5, 1),  # the same
        ("mobilenet_v1", 0.569, 3),
        ("mobilenet_v2", 0.429, 3),  # of the public model; the paper's net has 0.300
        ("resnet18", 1.8, 1),
        ("resnet101", 7.6, 1),
        ("resnet152", 11.3, 1),
    ],
)
def test_multiply_adds_as_published(name: str, published: float, places: int) -> None:
    assert round(models.summary(name).multiply_adds / 1e9, places) == published


# By these names, public weights are found.
@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("bvlc_alexnet", "conv1 conv2 conv5 fc6 fc8"),
        ("bvlc_googlenet", "conv1/7x7_s2 inception_3a/1x1 inception_5b/pool_proj loss3/classifier"),
        ("bvlc_reference_rcnn_ilsvrc13", "conv1 fc7 fc-rcnn"),
        ("finetune_flickr_style", "fc7 fc8_flickr"),
        ("vgg19", "conv1_1 conv5_4 fc6 fc8"),
        ("nin", "conv1 cccp1 conv4-1024 cccp8-1024"),
        ("squeezenet_v1.1", "conv1 fire2/squeeze1x1 fire9/expand3x3 conv10"),
        ("resnet50", "conv1 bn_conv1 scale_conv1 res2a_branch1 bn4f_branch2c scale5c_branch2c fc1000"),
        ("resnet101", "res3b3_branch2a bn4b22_branch2b scale5c_branch2c fc1000"),
        ("resnet152", "res2c_branch2a res3b7_branch2c bn4b35_branch2b"),
        ("mobilenet_v1", "conv1/bn conv2_1/dw conv5_6/sep/scale conv6/dw fc7"),
        ("mobilenet_v2", "conv2_1/expand conv4_7/dwise/bn conv6_3/linear/scale conv6_4 fc7"),
        ("densenet121", "conv2_1/x1/bn conv3_12/x2 conv4_blk/scale conv5_16/x2 conv5_blk/bn fc6"),
        ("inception_v3", "conv1_3x3_s2_bn inception_a1_5x5 reduction_b_7x1 inception_c2_3x1_2 classifier"),
        ("fcn8s", "conv1_1 fc7 score_fr upscore2 score_pool4 upscore_pool4 score_pool3 upscore8"),
    ],
)
def test_layers_have_their_public_names(name: str, layers: str) -> None:
    net = caffe.Net(str(models.path(name, "deploy.prototxt")), caffe.TEST)
    assert set(layers.split()) <= set(net.params)


# By these, scripts that were written for the public models find what they read.
@pytest.mark.parametrize(
    ("name", "blobs"),
    [
        ("bvlc_alexnet", "norm1 pool1 norm2 pool2 pool5 fc7 prob"),
        ("bvlc_googlenet", "conv2/norm2 inception_3a/output pool4/3x3_s2 pool5/7x7_s1 prob"),
        ("bvlc_reference_caffenet", "pool1 norm1 pool2 norm2 pool5 fc7 prob"),
        ("vgg16", "conv1_2 pool1 pool5 fc7 prob"),
        # The layers are called conv4-1024, cccp7-1024 and cccp8-1024.
        ("nin", "cccp2 pool0 pool2 pool3 conv4 cccp7 cccp8 pool4"),
        ("squeezenet_v1.1", "pool1 fire2/concat fire9/concat conv10 pool10 prob"),
        ("resnet50", "conv1 pool1 res2a res4f res5c pool5 fc1000 prob"),
        ("mobilenet_v1", "conv1 conv2_1/dw conv6/sep pool6 fc7 prob"),
        ("densenet121", "pool1 concat_2_1 pool2 pool5 fc6"),
        ("fcn8s", "pool3 pool4 fc7 fuse_pool4 fuse_pool3 score"),
        ("lenet", "conv1 pool1 conv2 pool2 ip1 ip2 prob"),
    ],
)
def test_blobs_have_their_public_names(name: str, blobs: str) -> None:
    net = caffe.Net(str(models.path(name, "deploy.prototxt")), caffe.TEST)
    assert set(blobs.split()) <= set(net.blobs)


def test_fully_convolutional_offsets_fit_any_size() -> None:
    net = caffe.Net(str(models.path("fcn8s", "deploy.prototxt")), caffe.TEST)
    for size in ((37, 64), (500, 375)):
        net.blobs["data"].reshape(1, 3, *size)
        net.reshape()
        assert net.blobs["score"].shape == (1, 21, *size)


def test_unknown_names_are_answered_with_the_closest() -> None:
    with pytest.raises(DataError, match="no model 'vgg61'; did you mean 'vgg19' or 'vgg16'"):
        models.path("vgg61")
    with pytest.raises(DataError, match="no model 'vgg61'"):
        models.summary("vgg61")
    with pytest.raises(DataError, match="no 'depoly.prototxt' in .*did you mean 'deploy.prototxt'"):
        models.path("vgg16", "depoly.prototxt")


def test_summary_counts_items_and_learned_parameters() -> None:
    n = caffe.NetSpec()
    n.data = caffe.layers.Input(input_param={"shape": {"dim": [5, 4, 6, 6]}})
    n.conv = caffe.layers.Convolution(n.data, num_output=3, kernel_size=3)
    n.bn = caffe.layers.BatchNorm(n.conv)
    summary = models.summary(n.to_proto())
    assert summary.items == 5
    assert summary.parameters == 3 * 4 * 9 + 3
    assert summary.multiply_adds == 3 * 4 * 4 * 4 * 9
    assert summary.memory == 4 * 5 * (4 * 36 + 2 * 3 * 16)
    assert str(summary).startswith("the net: 111 parameters, 1,728 multiply-adds")


def test_a_net_without_its_data_takes_what_it_is_given() -> None:
    definition = models.without_data(train_val("cifar10_quick"), data_shapes("cifar10_quick", 3))
    net = caffe.Net(definition, caffe.TEST)
    rng = np.random.default_rng(1)
    net.blobs["data"].data[...] = rng.normal(0, 50, (3, 3, 32, 32))
    net.blobs["label"].data[...] = [1, 2, 3]
    assert net.forward()["loss"] == pytest.approx(np.log(10), abs=0.1)


def test_a_shape_that_is_not_given_is_named() -> None:
    with pytest.raises(NetError, match=r"layer 'cifar': shapes lacks its top 'label' \(given: data\)"):
        models.without_data(train_val("cifar10_quick"), {"data": (1, 3, 32, 32)})


# -- scripts that come with models --------------------------------------------------------------------------


def run_script(name: str, script: str, *arguments: str) -> str:
    command = [sys.executable, str(models.path(name, script)), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def test_logistic_regression_reads_what_its_script_makes() -> None:
    run_script("logistic_regression", "make_data.py")
    net = caffe.Net(str(models.path("logistic_regression", "train_val.prototxt")), caffe.TEST)
    # The line that the classes were drawn by, from which 95 % to 97 % of them may be told.
    direction = np.array([1, -1, 2, 0.5])
    net.params["fc1"][0].data[...] = [-direction, direction]
    accuracy = np.mean([float(net.forward()["accuracy"]) for _ in range(250)])
    assert 0.95 < accuracy < 0.97


def test_a_text_as_streams_of_characters() -> None:
    Path("text.txt").write_text("To be, or not to be: that is the question…" * 600, encoding="utf-8")
    run_script("char_rnn", "make_data.py", "text.txt")
    with h5py.File("examples/char_rnn/train.h5") as file:
        data, target, cont = (file[key][()] for key in ("data", "target", "cont"))
    text = ("To be, or not to be: that is the question?" * 600)[: 25200 * 9 // 10]
    steps = (len(text) - 1) // 32 // 50 * 50
    assert data.shape == target.shape == cont.shape == (steps, 32)
    assert "".join(map(chr, data.T.astype(int).ravel())) == text[: steps * 32]
    assert "".join(map(chr, target.T.astype(int).ravel())) == text[1 : steps * 32 + 1]
    assert (cont[0] == 0).all() and (cont[1:] == 1).all()
    net = caffe.Net(str(models.path("char_rnn", "train_val.prototxt")), caffe.TRAIN)
    assert float(net.forward()["loss"]) == pytest.approx(np.log(128), rel=0.02)


def test_a_text_that_is_too_short() -> None:
    Path("text.txt").write_text("short")
    with pytest.raises(subprocess.CalledProcessError) as error:
        run_script("char_rnn", "make_data.py", "text.txt")
    assert "too few for 32 streams of 50 steps" in error.value.stderr


def test_the_character_model_writes() -> None:
    net = caffe.Net(str(models.path("char_rnn", "deploy.prototxt")), caffe.TEST)
    net.params["predict"][1].data[ord("a")] = 100
    net.save("a.caffemodel")
    assert run_script("char_rnn", "sample.py", "a.caffemodel", "ban", "5") == "banaaaaa\n"
