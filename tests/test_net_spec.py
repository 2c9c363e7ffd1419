"""NetSpec: what is written in Python, against the prototxt that it stands for."""

from __future__ import annotations

import copy
import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe import layers as L
from caffe import params as P
from caffe.errors import CaffeError
from caffe.net_spec import Top, assign_proto, param_name_dict
from caffe.proto import caffe_pb2


def parsed(text: str) -> caffe_pb2.NetParameter:
    return text_format.Parse(text, caffe_pb2.NetParameter())


def data(*shape: int) -> Top:
    return L.Input(shape={"dim": list(shape)})


def only_layer(top: Top) -> caffe_pb2.LayerParameter:
    return top.to_proto().layer[-1]


def test_a_net_with_shared_bottoms_and_several_tops() -> None:
    n = caffe.NetSpec()
    n.data, n.label = L.Data(source="db", backend=P.Data.LMDB, batch_size=4, ntop=2)
    n.ip1 = L.InnerProduct(n.data, num_output=3, weight_filler={"type": "xavier"})
    n.relu1 = L.ReLU(n.ip1, in_place=True)
    n.ip2 = L.InnerProduct(n.relu1, num_output=2, param=[{"lr_mult": 1}, {"lr_mult": 2}], name="fc")
    n.loss = L.SoftmaxWithLoss(n.ip2, n.label)
    n.accuracy = L.Accuracy(n.ip2, n.label, include={"phase": caffe.TEST})
    n.silence = L.Silence(n.ip1, ntop=0)
    assert n.to_proto() == parsed("""
        layer { name: "data" type: "Data" top: "data" top: "label"
                data_param { source: "db" batch_size: 4 backend: LMDB } }
        layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1"
                inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
        layer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }
        layer { name: "fc" type: "InnerProduct" bottom: "ip1" top: "ip2"
                param { lr_mult: 1 } param { lr_mult: 2 } inner_product_param { num_output: 2 } }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
        layer { name: "accuracy" type: "Accuracy" bottom: "ip2" bottom: "label" top: "accuracy"
                include { phase: TEST } }
        layer { name: "silence" type: "Silence" bottom: "ip1" }
    """)


def test_tops_without_names_are_numbered_by_type() -> None:
    first = L.ReLU(data(1, 2))
    a, b = L.Slice(first, ntop=2)
    net = caffe.to_proto(L.Eltwise(a, b), L.ReLU(first))
    assert [(layer.name, list(layer.bottom), list(layer.top)) for layer in net.layer] == [
        ("Input1", [], ["Input1"]),
        ("ReLU1", ["Input1"], ["ReLU1"]),
        ("Slice1", ["ReLU1"], ["Slice1", "Slice2"]),
        ("Eltwise1", ["Slice1", "Slice2"], ["Eltwise1"]),
        ("ReLU2", ["ReLU1"], ["ReLU2"]),
    ]


def test_the_message_is_written_as_pycaffe_wrote_it() -> None:
    text = str(caffe.to_proto(L.Power(data(2), scale=1, param={"lr_mult": 0.1})))
    assert text.splitlines()[-8:] == [
        '  top: "Power1"',
        "  param {",
        "    lr_mult: 0.1",
        "  }",
        "  power_param {",
        "    scale: 1.0",
        "  }",
        "}",
    ]


def test_a_net_that_runs() -> None:
    n = caffe.NetSpec()
    n.x = data(2, 3)
    n.y = L.Power(n.x, scale=2, shift=1)
    net = caffe.Net(n.to_proto(), caffe.TEST)
    np.testing.assert_array_equal(net.forward(x=np.ones((2, 3)))["y"], np.full((2, 3), 3))


def test_deeper_than_pythons_stack() -> None:
    top = data(1)
    for _ in range(sys.getrecursionlimit() + 100):
        top = L.ReLU(top)
    assert len(caffe.to_proto(top).layer) == sys.getrecursionlimit() + 101


PARAMETERS = {
    "lists": (lambda x: L.Convolution(x, pad=[1, 2]), "convolution_param { pad: 1 pad: 2 }"),
    "one value": (lambda x: L.Convolution(x, pad=1), "convolution_param { pad: 1 }"),
    "arrays": (
        lambda x: L.Convolution(x, stride=np.array([2, 3])),
        "convolution_param { stride: 2 stride: 3 }",
    ),
    "floats": (lambda x: L.Eltwise(x, coeff=np.float64([0.5, -1])), "eltwise_param { coeff: 0.5 coeff: -1 }"),
    "tuples": (lambda x: L.Reshape(x, shape={"dim": (0, -1)}), "reshape_param { shape { dim: 0 dim: -1 } }"),
    "messages": (
        lambda x: L.Reshape(x, shape=caffe_pb2.BlobShape(dim=[4])),
        "reshape_param { shape { dim: 4 } }",
    ),
    "NumPy's numbers": (
        lambda x: L.InnerProduct(x, num_output=np.int64(7)),
        "inner_product_param { num_output: 7 }",
    ),
    "whole floats": (lambda x: L.InnerProduct(x, num_output=14 / 2), "inner_product_param { num_output: 7 }"),
    "nothing": (lambda x: L.Slice(x, slice_param={"slice_point": []}), "slice_param { }"),
    "enums by number": (lambda x: L.Pooling(x, pool=P.Pooling.AVE), "pooling_param { pool: AVE }"),
    "enums by name": (lambda x: L.Pooling(x, pool="AVE"), "pooling_param { pool: AVE }"),
    "another type's message": (
        lambda x: L.Deconvolution(x, num_output=2),
        "convolution_param { num_output: 2 }",
    ),
    "recurrent": (lambda x: L.LSTM(x, num_output=2), "recurrent_param { num_output: 2 }"),
    "two messages": (
        lambda x: L.SoftmaxWithLoss(x, ignore_label=9, axis=2),
        "softmax_param { axis: 2 } loss_param { ignore_label: 9 }",
    ),
    "the message itself": (
        lambda x: L.Convolution(x, convolution_param={"group": 2}),
        "convolution_param { group: 2 }",
    ),
    "of every layer": (
        lambda x: L.ReLU(x, loss_weight=[1], propagate_down=True),
        "loss_weight: 1 propagate_down: true",
    ),
    "Python": (
        lambda x: L.Python(x, module="m", layer="C", param_str="s"),
        'python_param { module: "m" layer: "C" param_str: "s" }',
    ),
}


@pytest.mark.parametrize("case", PARAMETERS)
def test_parameters(case: str) -> None:
    top, text = PARAMETERS[case]
    layer = only_layer(top(data(1)))
    head = f'name: "{layer.name}" type: "{layer.type}" bottom: "Input1" top: "{layer.type}1"'
    assert layer == parsed(f"layer {{ {head} {text} }}").layer[0]


def test_any_word_is_a_layer_type() -> None:
    layer = only_layer(L.MyOwnLayer(data(1), param={"lr_mult": 0}))
    assert (layer.type, layer.name, layer.param[0].lr_mult) == ("MyOwnLayer", "MyOwnLayer1", 0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: L.Convolution(x, kernel_sise=3), "no parameter 'kernel_sise'; did you mean 'kernel_size'"),
        (lambda x: L.Convolution(x, kernel_sise=3), "its own: num_output"),
        (
            lambda x: L.Convolution(x, weight_filler={"tipe": 1}),
            "FillerParameter has no field 'tipe'.*'type'",
        ),
        (lambda x: L.Convolution(x, weight_filler="xavier"), r"a dict is wanted, such as dict\(type"),
        (lambda x: L.Convolution(x, num_output="many"), "ConvolutionParameter.num_output = 'many'"),
        (lambda x: L.Convolution(x, num_output=2.5), "ConvolutionParameter.num_output = 2.5"),
        (lambda x: L.Pooling(x, pool="MAXX"), "no value of PoolMethod; did you mean 'MAX'"),
        (lambda x: P.Poling.MAX, "did you mean 'Pooling'"),
    ],
)
def test_faults_in_parameters(call, words: str) -> None:
    with pytest.raises(CaffeError, match=words) as caught:
        caffe.to_proto(call(data(1)))
    # What protobuf raised for them.
    assert isinstance(caught.value, AttributeError)


def test_inputs_that_are_no_tops() -> None:
    x = data(1)
    with pytest.raises(TypeError, match=r"ReLU input 0 is not a Top \(type is str\)"):
        L.ReLU("x")
    with pytest.raises(TypeError, match=r"Concat input 1 is not a Top \(type is tuple\); put \* before it"):
        L.Concat(x, (x, x))
    with pytest.raises(TypeError, match=r"to_proto\(n.loss, ...\), not list"):
        caffe.to_proto([x])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"not NetSpec; a NetSpec has a to_proto\(\) of its own"):
        caffe.to_proto(caffe.NetSpec())  # type: ignore[arg-type]


def test_a_netspec_is_read_changed_and_copied() -> None:
    n = caffe.NetSpec()
    n.x = data(1)
    n["y"] = L.ReLU(n["x"])
    assert "y" in n and n.y is n["y"]
    duplicate = copy.copy(n)
    del n.y
    n.z = L.TanH(n.x)
    del n["z"]
    assert [layer.name for layer in n.to_proto().layer] == ["x"]
    assert duplicate.tops is n.tops
    assert not hasattr(n, "yy")
    with pytest.raises(CaffeError, match="no top 'yy'"):
        n.yy  # noqa: B018
    with pytest.raises(TypeError, match=r"unpack it: n.a, n.b"):
        n.pair = L.Slice(n.x, ntop=2)


def test_assign_proto_on_any_message() -> None:
    solver = caffe_pb2.SolverParameter()
    assign_proto(solver, "test_iter", 3)
    assign_proto(solver, "solver_mode", "CPU")
    assign_proto(solver, "train_state", {"stage": ["a", "b"]})
    assert solver == text_format.Parse(
        'test_iter: 3 solver_mode: CPU train_state { stage: "a" stage: "b" }', caffe_pb2.SolverParameter()
    )


def test_param_names() -> None:
    names = param_name_dict()
    assert names["Convolution"] == "convolution"
    assert names["HDF5Data"] == "hdf5_data"
    assert names["InnerProduct"] == "inner_product"


def test_editors_see_the_current_schema() -> None:
    """What scripts/stubs would write is there."""
    path = Path(__file__).parents[1] / "scripts" / "stubs"
    loader = importlib.machinery.SourceFileLoader("stubs", str(path))
    spec = importlib.util.spec_from_loader("stubs", loader)
    assert spec is not None
    stubs = importlib.util.module_from_spec(spec)
    loader.exec_module(stubs)
    assert stubs.TARGET.read_text() == stubs.text()
    compile(stubs.text(), "_layer_functions.pyi", "exec")
