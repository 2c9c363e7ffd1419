"""caffe net and caffe draw_net: summary, draw, diff; and files of unknown origin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import caffe
from caffe import resources

DEPLOY = resources.data_path("models", "digits", "deploy.prototxt")
TRAIN = resources.data_path("models", "digits", "train_test.prototxt")


def test_summary(cli):
    done = cli("net", "summary", DEPLOY)
    assert done.status == 0 and "Creating Layer" not in done.err
    lines = done.out.splitlines()
    assert lines[0].split() == ["layer", "type", "tops", "shape", "parameters", "multiply-adds"]
    assert lines[2].split() == ["conv1", "Convolution", "conv1", "1×16×8×8", "160", "9.22", "k"]
    assert lines[-1].split() == ["10", "layers", "38,282", "338", "k"]
    assert cli("net", "summary", TRAIN, "--phase=TRAIN").out.splitlines()[1].split()[2:] == [
        "data,",
        "label",
        "60×1×8×8,",
        "60",
    ]


@pytest.mark.parametrize("words", [["summary", DEPLOY], ["draw", DEPLOY, "net.svg"]])
def test_a_look_at_a_net_writes_no_log(start, words):
    """No engine is loaded for it, which would say so."""
    out, err = start("net", *map(str, words)).communicate(timeout=60)
    assert out and not err


def test_summary_as_json(cli):
    rows = json.loads(cli("net", "summary", "-json", DEPLOY).out)
    assert rows[1]["name"] == "conv1"
    assert rows[1]["param_shapes"] == [[16, 1, 3, 3], [16]]
    assert sum(row["parameters"] for row in rows) == 38282


@pytest.mark.parametrize("words", [["draw_net"], ["net", "draw"]])
def test_draw(cli, words):
    done = cli(*words, DEPLOY, "net.html", "--rankdir", "TB")
    assert done.status == 0 and "Drawing net to net.html" in done.out
    assert "1×16×8×8" in Path("net.html").read_text()


def test_draw_what_cannot_be_made(cli, tiny):
    text = Path("net.prototxt").read_text().replace("DummyData", "NoSuchLayer")
    Path("strange.prototxt").write_text(text.replace("dummy_data_param", "dummy_data_param"))
    done = cli("draw_net", "strange.prototxt", "net.dot")
    assert done.status == 0 and "drawn without shapes: layer 'data'" in done.err
    assert "(NoSuchLayer)" in Path("net.dot").read_text()


def test_draw_all_phases_or_one(cli):
    assert cli("draw_net", TRAIN, "all.dot").status == 0
    assert cli("draw_net", TRAIN, "train.dot", "--phase", "TRAIN", "--display_lrm").status == 0
    both, train = Path("all.dot").read_text(), Path("train.dot").read_text()
    assert "Accuracy" in both and "×" not in both
    assert "Accuracy" not in train and "60×1×8×8" in train and "lr mult: 1" in train


def test_diff_of_definitions(cli):
    lines = cli("net", "diff", DEPLOY, TRAIN).out.splitlines()
    assert lines[0] == "- layer 'data' (Input)"
    assert lines[1] == "~ layer 'conv1' (Convolution)"
    assert "    param[1].lr_mult: nothing against 2.0" in lines
    assert "    convolution_param.weight_filler.type: nothing against 'xavier'" in lines
    assert lines.count("+ layer 'digits' (Data)") == 2
    assert cli("net", "diff", TRAIN, TRAIN).out == "The nets are the same.\n"


def test_diff_of_weights(cli):
    net = caffe.Net(str(DEPLOY), caffe.TEST)
    net.params["ip2"][0].data[...] = 3
    net.save("a.caffemodel")
    net.params["conv1"][1].data[3] += 0.5
    net.params["ip2"][0].data[...] *= 2
    net.save("b.caffemodel")
    lines = cli("net", "diff", "a.caffemodel", "b.caffemodel").out.splitlines()
    assert lines == [
        "~ layer 'conv1' (Convolution)",
        "    param 1 (16): 1 of 16 values differ, by at most 0.5; the largest is 0",
        "~ layer 'ip2' (InnerProduct)",
        "    param 0 (10×64): 640 of 640 values differ, by at most 3; the largest is 3",
    ]
    # A prototxt has no parameters to compare, and not the phase that a saved net notes in each layer.
    assert cli("net", "diff", DEPLOY, "b.caffemodel").out == "The nets are the same.\n"


def test_diff_of_shapes_names_and_order(cli):
    head = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 } } }'
    for name, order in (("a", {"p": 3, "q": 2}), ("b", {"q": 2, "p": 4})):
        layers = "".join(
            f'layer {{ name: "{layer}" type: "InnerProduct" bottom: "x" top: "{layer}"'
            f" inner_product_param {{ num_output: {outputs} }} }}"
            for layer, outputs in order.items()
        )
        Path(f"{name}.prototxt").write_text(f'name: "{name}" {head} {layers}')
        caffe.Net(f"{name}.prototxt", caffe.TEST).save(f"{name}.caffemodel")
    assert cli("net", "diff", "a.caffemodel", "b.caffemodel").out.splitlines() == [
        "~ name: 'a' against 'b'",
        "~ the layers that both have stand in another order",
        "~ layer 'p' (InnerProduct)",
        "    inner_product_param.num_output: 3 against 4",
        "    param 0: 3×2 against 4×2",
        "    param 1: 3 against 4",
    ]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["net", "summary", "absent.prototxt"], "absent.prototxt"),
        (["net", "diff", "absent.prototxt", "x"], "absent.prototxt"),
        (["net", "diff", "bad.caffemodel", "bad.caffemodel"], "bad.caffemodel"),
        (["draw_net", "absent.prototxt", "x.svg"], "absent.prototxt"),
    ],
)
def test_files_that_cannot_be_read(cli, argv, words):
    Path("bad.caffemodel").write_text("name: 'text'")
    done = cli(*argv)
    assert done.status == 1 and words in done.error


PYTHON = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 } } }
layer { name: "p" type: "Python" bottom: "x" top: "y" python_param { module: "evil_module" layer: "Evil" } }
"""


def test_python_layers_are_refused_on_demand(cli, tmp_path, monkeypatch):
    Path("net.prototxt").write_text(PYTHON)
    Path("evil_module.py").write_text("open('ran', 'w')\nraise SystemExit")
    monkeypatch.syspath_prepend(tmp_path)
    for flag in ("--no-python-layers", "-nopython_layers", "-python_layers=false"):
        done = cli("net", "summary", "net.prototxt", flag)
        assert done.status == 1
        assert "Python layers are refused here" in done.error and "evil_module" in done.error
    assert not Path("ran").exists()
    assert caffe.context.python_layers_allowed() is False
    cli("--version")
    cli("net", "summary", DEPLOY)
    assert caffe.context.python_layers_allowed() is True
