"""What layer functions write down, against the prototxt that it stands for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe import model as M
from caffe.net_insertion import filter_net
from caffe.net_spec import NetSpecError
from caffe.proto import caffe_pb2
from caffe.resources import data_path
from caffe.upgrade_proto import read_net_upgraded

NETS = sorted(p for p in data_path("models").glob("*/*.prototxt") if p.name != "solver.prototxt")


def parsed(text: str) -> caffe_pb2.NetParameter:
    return text_format.Parse(text, caffe_pb2.NetParameter())


@pytest.mark.parametrize("path", NETS, ids=[f"{p.parent.name}-{p.stem}" for p in NETS])
def test_every_reference_net_comes_back(path: Path) -> None:
    net = read_net_upgraded(str(path))
    model = M.from_proto(path)
    assert model.to_proto() == net
    for phase, name in ((caffe.TRAIN, "train"), (caffe.TEST, "test")):
        state = caffe_pb2.NetState(phase=phase)
        assert list(model.to_proto(name).layer) == list(filter_net(net, state).layer)
    assert M.from_proto(model.to_proto()).to_proto() == net


def test_the_example() -> None:
    with M.Model("lenet") as m:
        x = M.input((64, 1, 28, 28))
        y = M.input((64,), name="label")
        h = m.max_pool(m.conv(x, 20, kernel_size=5), 2)
        h = m.relu(M.fc(h, 500))
        m.softmax_loss(m.fc(h, 10, name="score"), y)
    assert m.to_proto() == parsed("""
        name: "lenet"
        layer { name: "data" type: "Input" top: "data"
                input_param { shape { dim: 64 dim: 1 dim: 28 dim: 28 } } }
        layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 64 } } }
        layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
                convolution_param { num_output: 20 kernel_size: 5 weight_filler { type: "xavier" } } }
        layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
                pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
        layer { name: "fc1" type: "InnerProduct" bottom: "pool1" top: "fc1"
                inner_product_param { num_output: 500 weight_filler { type: "xavier" } } }
        layer { name: "relu1" type: "ReLU" bottom: "fc1" top: "fc1" }
        layer { name: "score" type: "InnerProduct" bottom: "fc1" top: "score"
                inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "label" top: "loss" }
    """)
    deploy = m.to_proto("deploy")
    assert [layer.type for layer in deploy.layer] == [
        "Input",
        "Convolution",
        "Pooling",
        "InnerProduct",
        "ReLU",
        "InnerProduct",
        "Softmax",
    ]
    assert list(deploy.layer[0].input_param.shape[0].dim) == [1, 1, 28, 28]


def test_layers_are_functions_of_their_inputs() -> None:
    """A ReLU works in place only where nobody can tell."""
    m = M.Model()
    x = m.input((2, 3))
    a = m.fc(x, 4)
    m.relu(a)
    lonely = m.to_proto().layer[-1]
    assert lonely.top[0] == lonely.bottom[0] == "fc1"
    m.sigmoid(a)
    assert m.to_proto().layer[2].top[0] == "relu1"
    m2 = M.Model()
    pooled = m2.max_pool(m2.relu(m2.input((1, 1, 4, 4))))
    assert not [n for n in m2.to_proto().layer if n.top[0] in n.bottom], "an input is the program's"
    # sigmoid's gradient needs its output
    m2.relu(m2.sigmoid(pooled))
    assert not [n for n in m2.to_proto().layer if n.top[0] in n.bottom]


def test_in_place_where_another_layer_reads_the_input_is_refused() -> None:
    m = M.Model()
    a = m.fc(m.input((2, 3)), 4)
    m.relu(a, in_place=True)
    m.sigmoid(a)
    with pytest.raises(M.ModelError, match=r"relu1.*works in place on 'fc1', which layer 'sigmoid1' .*reads"):
        m.to_proto()


def test_scopes_and_names() -> None:
    m = M.Model()
    x = m.input((2, 3))
    with m.scope("block"):
        a = m.fc(x, 4)
        with m.scope("inner"):
            b = m.fc(a, 4, name="mine")
    c = m.fc(b, 4)
    assert [t.name for t in (x, a, b, c)] == ["data", "block/fc1", "block/inner/mine", "fc1"]
    with pytest.raises(
        M.ModelError, match=r"has a layer 'fc1' already \(InnerProduct, made at test_definition"
    ):
        m.fc(c, 4, name="fc1")


def test_phases() -> None:
    m = M.Model()
    x, y = m.input((2, 3)), m.input((2,), name="label")
    s = m.fc(x, 4)
    with m.phase("test"):
        m.softmax(s)
    m.accuracy(s, y)
    m.silence(y, phase="train")
    assert [n.type for n in m.to_proto("train").layer][2:] == ["InnerProduct", "Silence"]
    assert [n.type for n in m.to_proto("test").layer][2:] == ["InnerProduct", "Softmax", "Accuracy"]
    with pytest.raises(M.ModelError, match="phase must be 'train' or 'test'"):
        m.relu(s, phase="deploy")


def test_a_layer_of_one_phase_in_the_middle() -> None:
    m = M.Model()
    x = m.input((2, 3))
    s = m.fc(m.dropout(m.fc(x, 4), phase="train"), 5)
    assert [(n.name, *n.bottom, *n.top) for n in m.to_proto("test").layer] == [
        ("data", "data"),
        ("fc1", "data", "fc1"),
        ("fc2", "fc1", "fc2"),
    ]
    assert [n.name for n in m.to_proto("test", outputs=s).layer] == ["data", "fc1", "fc2"]
    assert m.run(s, {x: np.ones((1, 3))}).shape == (1, 5)
    hidden = m.sigmoid(s, phase="train")
    m.fc(hidden, 2)
    with pytest.raises(
        M.ModelError, match=r"'fc3' .*reads 'sigmoid1', which layer 'sigmoid1' .*one phase only"
    ):
        m.to_proto()
    with pytest.raises(
        M.ModelError, match=r"'sigmoid1' is needed, and layer 'sigmoid1' .* not of this phase"
    ):
        m.net("test", hidden)


def test_an_output_that_only_training_makes_is_what_stands_in_its_place() -> None:
    m = M.Model(seed=1)
    x = m.input((1, 3))
    h = m.fc(x, 4)
    d = m.dropout(h, phase="train")
    r = m.relu(d)
    batch = np.ones((2, 3))
    for phase in ("test", "deploy"):
        before, dropped, after = m.run([h, d, r], {x: batch}, phase=phase)
        np.testing.assert_array_equal(before, dropped)
        np.testing.assert_array_equal(np.maximum(dropped, 0), after)
        np.testing.assert_array_equal(m.run(d, {x: batch}, phase=phase), before)
    assert (before < 0).any()
    assert m.net("train", d).wanted == ["fc1"], "in place there"
    assert m.net("test", inputs=[h]).inputs == ["fc1"]


def test_a_layer_of_training_right_behind_the_data_is_not_deployed() -> None:
    m = M.Model(seed=1)
    x, y = m.data((np.ones((4, 3)), np.zeros(4)), 2)
    m.softmax_loss(m.fc(m.dropout(x, phase="train"), 5), y)
    net = m.net("deploy")
    assert net.inputs == ["data"] and net(np.ones((2, 3))).shape == (2, 5)


def test_what_is_made_in_another_phase_only_is_named_with_its_line() -> None:
    m = M.Model()
    x = m.input((2, 3))
    line = _line()
    h = m.dropout(x, phase="train", in_place=False)
    m.fc(h, 2)
    assert m.to_proto("train").layer[-1].bottom == ["drop1"]
    for ask in (m.to_proto, m.net):
        with pytest.raises(
            M.ModelError,
            match=rf"'fc1' .*:{line + 2}\): it reads 'drop1', which layer 'drop1' \(.*:{line + 1}\) makes in",
        ):
            ask("test")


def test_pruned_nets() -> None:
    m = M.Model()
    x, y = m.input((2, 3)), m.input((2,), name="label")
    a = m.relu(m.fc(x, 4))
    s = m.fc(a, 5)
    m.softmax_loss(s, y)
    assert [n.name for n in m.to_proto("test", outputs=a).layer] == ["data", "fc1", "relu1"]
    cut = m.to_proto("test", outputs=[s], inputs=[a])
    assert [n.type for n in cut.layer] == ["Input", "InnerProduct"]
    assert list(cut.layer[0].input_param.shape[0].dim) == [2, 4]


def test_mistakes_are_refused_at_their_line() -> None:
    m, other = M.Model("a"), M.Model("b")
    x = m.input((2, 3))
    with pytest.raises(NetSpecError, match="has no parameter 'num_ouput'; did you mean 'num_output'"):
        m.inner_product(x, num_ouput=3)
    with pytest.raises(
        M.ModelError, match=r"input 0 belongs to another model \('a', made at test_definition"
    ):
        other.relu(x)
    with pytest.raises(M.ModelError, match=r"input 0 must be what a layer function gave, not ndarray"):
        m.relu(np.zeros(3))
    with pytest.raises(M.ModelError, match=r"put \* before it"):
        m.concat([x, x])
    with pytest.raises(AttributeError, match="there is no layer function 'conf'; did you mean 'conv'"):
        m.conf(x)
    with pytest.raises(AttributeError, match="did you mean 'conv'"):
        M.conf  # noqa: B018
    with pytest.raises(M.ModelError, match="Unknown layer type: Convolutoin; did you mean 'Convolution'"):
        m.layer("Convolutoin", x)


def test_faults_of_a_net_name_the_python_line() -> None:
    m = M.Model()
    x = m.input((2, 3, 8, 8))
    line = _line()
    h = m.conv(x, 6, 3, group=4)
    m.fc(h, 2)
    with pytest.raises(caffe.CaffeError, match=rf"conv1.*test_definition.py:{line + 1}\b"):
        m.net("train")
    with pytest.raises(caffe.CaffeError, match=rf"test_definition.py:{line + 1}\b"):
        _ = h.shape


def _line() -> int:
    import sys

    return sys._getframe(1).f_lineno


def test_hand_written_functions() -> None:
    m = M.Model()
    x = m.input((2, 3, 8, 8))
    d = m.deconv(x, 2, (4, 2), stride=2, pad=1, bias=False)
    layer = d.layer.definition.convolution_param
    assert (layer.kernel_h, layer.kernel_w, list(layer.stride), list(layer.pad)) == (4, 2, [2], [1])
    assert not layer.bias_term
    n = m.relu(m.batch_norm(m.conv(x, 3, pad=1), momentum=0.9))
    assert n.shape == (2, 3, 8, 8)
    assert [c.name for c in m.layers[-3:]] == ["bn1", "bn1/scale", "relu1"]
    last = m.to_proto().layer[-1]
    assert last.top[0] == "conv1", "batch norm, scale and ReLU all in place"
    assert m.add(x, n, coeff=[1, -1]).shape == m.multiply(x, n).shape == m.maximum(x, n).shape == x.shape
    assert m.concat(x, n).shape == (2, 6, 8, 8)
    assert m.global_avg_pool(n).shape == (2, 3, 1, 1)
    assert m.avg_pool(n, 3, 1, pad=1).shape == (2, 3, 8, 8)
    assert m.reshape(n, (0, -1)).shape == (2, 192)
    parts = m.slice(x, ntop=3)
    assert [p.shape for p in parts] == [(2, 1, 8, 8)] * 3
    tokens, cont = m.input((5, 2), name="tokens"), m.input((5, 2), name="cont")
    words = m.embed(tokens, 11, 7)
    assert words.shape == (5, 2, 7)
    assert m.lstm(words, cont, 6).shape == m.rnn(words, cont, 6).shape == (5, 2, 6)


def test_every_layer_type_has_its_function() -> None:
    from caffe.model.modules import snake_case

    for type_name in caffe.layer_type_list():
        function = getattr(M, snake_case(type_name))
        assert callable(function) and function.__doc__
        assert snake_case(type_name) in dir(M) and snake_case(type_name) in dir(M.Model())
    for words, function in [
        ("abs_val", "absval"),
        ("arg_max", "argmax"),
        ("softmax_with_loss", "softmax_loss"),
    ]:
        assert getattr(M, words).__doc__ == getattr(M, function).__doc__, "as the type is written"
    assert "num_output" in M.convolution.__doc__ or "Layer type Convolution" in M.convolution.__doc__
