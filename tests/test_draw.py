"""Drawings: what stands on them and what is joined with what; read back from DOT and from SVG."""

from __future__ import annotations

import html
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from google.protobuf import text_format

import caffe
import caffe.draw
from caffe.errors import CaffeError
from caffe.proto import caffe_pb2

NET = """
name: "a \\"net\\""
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } }
        include { phase: TEST } }
layer { name: "db" type: "Data" top: "data" include { phase: TRAIN }
        data_param { source: "db" batch_size: 32 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" param { lr_mult: 3 }
        convolution_param { num_output: 4 kernel_h: 3 kernel_w: 1 stride: 2 pad: 1 group: 1 dilation: 2 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: AVE kernel_size: 2 } }
layer { name: "tanh" type: "TanH" bottom: "conv" top: "tanh" }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "silence" type: "Silence" bottom: "tanh" }
"""


def definition() -> caffe_pb2.NetParameter:
    return text_format.Parse(NET, caffe_pb2.NetParameter())


def edges(dot: str) -> set[tuple[str, str, str]]:
    found = re.findall(r'^  "(.*)" -> "(.*?)"(?: \[label="(.*)"\])?;$', dot, re.MULTILINE)
    return {(source, target, label) for source, target, label in found}


def labels(dot: str) -> dict[str, str]:
    return dict(re.findall(r'^  "(.*?)" \[label="(.*?)", shape', dot, re.MULTILINE))


def test_layers_blobs_and_their_edges() -> None:
    dot = caffe.draw.get_dot(definition(), phase=caffe.TEST)
    assert edges(dot) == {
        ("data_Input", "data_blob", ""),
        ("data_blob", "conv_Convolution", ""),
        ("conv_Convolution", "conv_blob", "4"),
        ("conv_blob", "relu_ReLU", ""),
        ("relu_ReLU", "pool_Pooling", ""),
        ("relu_ReLU", "tanh_TanH", ""),
        ("pool_Pooling", "pool_blob", ""),
        ("tanh_TanH", "tanh_blob", ""),
        ("pool_blob", "ip_InnerProduct", ""),
        ("ip_InnerProduct", "ip_blob", "5"),
        ("tanh_blob", "silence_Silence", ""),
    }
    assert dot.startswith('digraph "a \\"net\\"" {')
    assert (
        labels(dot)["conv_Convolution"]
        == r"conv\n(Convolution)\nkernel size: 3x1\nstride: 2\npad: 1\ndilation: 2"
    )
    assert labels(dot)["pool_Pooling"] == r"pool\n(AVE Pooling)\nkernel size: 2\nstride: 1\npad: 0"


def test_a_net_shows_amounts_and_shapes_but_not_its_own_splits() -> None:
    net = caffe.Net(definition(), caffe.TEST)
    assert any("split" in name for name in net._layer_names)
    dot = caffe.draw.get_dot(net, label_edges=False)
    assert edges(dot) == {(s, t, "") for s, t, _ in edges(caffe.draw.get_dot(definition(), phase=caffe.TEST))}
    # (8 + 2 - 5) / 2 + 1 = 3 rows and, with a kernel of one, (8 + 2 - 1) / 2 + 1 = 5 columns
    assert labels(dot)["conv_blob"] == r"conv\n2×4×3×5"
    assert labels(dot)["conv_Convolution"].endswith(r"\n40 parameters\n1.08 k multiply-adds")


def test_phases_learning_rates_and_directions() -> None:
    both = labels(caffe.draw.get_dot(definition()))
    assert {"data_Input", "db_Data", "data_blob", "data_blob'"} <= set(both)
    train = caffe.draw.get_dot(definition(), "TB", phase=caffe.TRAIN, display_lrm=True)
    assert ("db_Data", "data_blob", "Batch 32") in edges(train)
    assert labels(train)["conv_Convolution"].endswith("dilation: 2 lr mult: 3")
    assert labels(train)["ip_InnerProduct"] == "ip (InnerProduct) lr mult: 1"
    assert "rankdir=TB;" in train
    with pytest.raises(CaffeError, match="rankdir must be one of LR, TB, RL, BT, not 'up'"):
        caffe.draw.get_dot(definition(), "up")


def test_old_definitions_are_drawn_too() -> None:
    old = text_format.Parse(
        'input: "x" input_dim: 1 input_dim: 2 input_dim: 3 input_dim: 4 '
        'layers { name: "r" type: RELU bottom: "x" top: "y" }',
        caffe_pb2.NetParameter(),
    )
    assert ("x_blob", "r_ReLU", "") in edges(caffe.draw.get_dot(old))
    assert old.layers and not old.layer


@pytest.fixture
def no_dot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")


SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("rankdir", caffe.draw.RANKDIRS)
def test_svg_without_graphviz(no_dot: None, rankdir: str) -> None:
    net = caffe.Net(definition(), caffe.TEST)
    root = ElementTree.fromstring(caffe.draw.draw_net(net, rankdir, ext="svg"))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    dot = caffe.draw.get_dot(net)
    for label in labels(dot).values():
        for line in label.split(r"\n"):
            assert line in texts
    # One path for each edge, and one for the arrow's tip.
    assert len([*root.iter(f"{SVG}path")]) == len(edges(dot)) + 1
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    boxes = {}
    for box in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(box.get(name, "")) for name in ("x", "y", "width", "height"))
        assert 0 <= x and x + w <= width and 0 <= y and y + h <= height
        boxes[len(boxes)] = (x + w / 2, y + h / 2)
    # Layers come in the order of the net: the first is at one end, along the direction.
    first, last = boxes[0], boxes[list(labels(dot)).index("ip_blob")]
    along = {
        "LR": last[0] - first[0],
        "RL": first[0] - last[0],
        "TB": last[1] - first[1],
        "BT": first[1] - last[1],
    }
    assert along[rankdir] > 0


def test_files_by_the_end_of_their_names(no_dot: None, tmp_path: Path) -> None:
    net = caffe.Net(definition(), caffe.TEST)
    for name in ("net.svg", "net.html", "net.dot", "NET.SVG"):
        caffe.draw.draw_net_to_file(net, tmp_path / name)
    page = (tmp_path / "net.html").read_text()
    assert "<svg" in page and "<table>" in page and "2×4×3×5" in page and "a &quot;net&quot;" in page
    caffe.draw.draw_net_to_file(definition(), tmp_path / "bare.html", phase=caffe.TRAIN)
    assert "<table>" not in (tmp_path / "bare.html").read_text()
    with pytest.raises(CaffeError, match=r"\.pdf needs Graphviz's program dot.*apt install graphviz"):
        caffe.draw.draw_net_to_file(net, "net.pdf")
    with pytest.raises(CaffeError, match="must end with a format"):
        caffe.draw.draw_net_to_file(net, "net")
    with pytest.raises(CaffeError, match="cannot write"):
        caffe.draw.draw_net_to_file(net, "absent/net.svg")


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs Graphviz's dot")
def test_graphviz() -> None:
    net = caffe.Net(definition(), caffe.TEST)
    assert caffe.draw.draw_net(net, "LR", "png").startswith(b"\x89PNG")
    assert caffe.draw.draw_net(net, "TB", "pdf").startswith(b"%PDF")
    assert "multiply-adds" in html.unescape(caffe.draw.draw_net(net, "TB", "svg").decode())
    with pytest.raises(CaffeError, match="dot -Tnone failed"):
        caffe.draw.draw_net(net, "TB", "none")


def test_a_files_name_is_not_drawn() -> None:
    with pytest.raises(TypeError, match="a Net or a NetParameter is drawn, not str; caffe.Net reads a file"):
        caffe.draw.draw_net("deploy.prototxt", "LR", "svg")  # type: ignore[arg-type]


def test_pydot_is_asked_for_only_here() -> None:
    try:
        import pydot  # noqa: F401
    except ImportError:
        with pytest.raises(CaffeError, match="pip install pydot"):
            caffe.draw.get_pydot_graph(definition(), "LR")
    else:
        assert len(caffe.draw.get_pydot_graph(definition(), "LR").get_edges()) == 13


def test_the_words_on_layers() -> None:
    layers = {layer.name: layer for layer in definition().layer}
    draw = caffe.draw
    assert draw.get_layer_label(layers["ip"], "TB") == "ip (InnerProduct)"
    assert draw.get_layer_label(layers["ip"], "LR") == "ip\n(InnerProduct)"
    assert (draw.get_layer_lr_mult(layers["conv"]), draw.get_layer_lr_mult(layers["ip"])) == (3, 1)
    assert draw.get_edge_label(layers["relu"]) == '""'
    assert draw.get_pooling_types_dict()[1] == "AVE"
    assert draw.choose_color_by_layertype("Pooling") != draw.choose_color_by_layertype("ReLU")


@pytest.mark.parametrize(
    "path", sorted(Path(__file__).parents[1].glob("models/*/*.prototxt")), ids=lambda p: p.name
)
def test_every_model_of_ours_can_be_drawn(no_dot: None, path: Path) -> None:
    if "solver" in path.name:
        return
    net = text_format.Parse(path.read_text(), caffe_pb2.NetParameter())
    root = ElementTree.fromstring(caffe.draw.draw_net(net, "LR", "svg"))
    names = {text.text for text in root.iter(f"{SVG}text")}
    assert {layer.name for layer in net.layer} <= names
