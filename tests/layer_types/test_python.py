"""Python layers: found by module and name, run as users wrote them, refused with the cure."""

from __future__ import annotations

import sys
import traceback

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe import context
from caffe.errors import LayerError
from caffe.gradient_check import check_gradient
from caffe.kernels import PythonKernel, select
from caffe.proto import caffe_pb2
from layer_types import support

MODULE = '''
import caffe

class Old(caffe.Layer):
    """Written for pycaffe: a constructor that passes its arguments on, data and diff."""

    def __init__(self, p_object, *args, **kwargs):
        super(Old, self).__init__(p_object, *args, **kwargs)
        self.constructed_with = p_object.name

    def setup(self, bottom, top):
        self.factor = float(self.param_str)
        assert self.param_str_ == self.param_str
        self.blobs.add_blob(1)
        self.blobs[0].data[0] = 3

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = self.factor * self.blobs[0].data[0] * bottom[0].data

    def backward(self, top, propagate_down, bottom):
        self.blobs[0].diff[0] += self.factor * (bottom[0].data * top[0].diff).sum()
        if propagate_down[0]:
            bottom[0].diff[...] = self.factor * self.blobs[0].data[0] * top[0].diff

class Careless(caffe.Layer):
    def __init__(self, param):
        self.seen = (self.phase, self.param_str)

    def reshape(self, bottom, top):
        top[0].reshape(1)

    def forward(self, bottom, top):
        raise ZeroDivisionError("the user's own words")

class NoArguments(caffe.Layer):
    def __init__(self):
        pass

class Plain:
    pass
'''


@pytest.fixture(autouse=True)
def module_files(tmp_path, monkeypatch):
    (tmp_path / "user_layers.py").write_text(MODULE)
    (tmp_path / "broken_layers.py").write_text("import a_module_that_is_not_there\n")
    (tmp_path / "wrong_layers.py").write_text("raise KeyError('at import')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("user_layers", "broken_layers", "wrong_layers"):
        sys.modules.pop(name, None)


def text(layer, module="user_layers", more=""):
    return f"""type: "Python" python_param {{ module: "{module}" layer: "{layer}" {more} }}"""


X = np.random.default_rng(0).standard_normal((2, 3))


def test_forward_backward_parameters_and_attributes():
    layer, bottom, top = support.build(text("Old", more='param_str: "0.5"'), X)
    assert layer.constructed_with == layer.name == "L"
    assert (layer.type, layer.param_str, layer.is_python, layer.reshape_every_pass) == (
        "Python",
        "0.5",
        True,
        True,
    )
    assert type(layer).__name__ == "Old" and isinstance(layer, sys.modules["user_layers"].Old)
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], 1.5 * X)
    dy = np.random.default_rng(1).standard_normal(X.shape)
    np.testing.assert_allclose(support.backward(layer, bottom, top, dy)[0], 1.5 * dy)
    np.testing.assert_allclose(layer.blobs[0].diff, [0.5 * (X * dy).sum()])
    assert select(layer, bottom, ["reference"]) is PythonKernel


def test_gradient_check_takes_prototxt_class_and_instance():
    assert check_gradient(text("Old", more='param_str: "2"'), X) < 1e-6
    layer, _, _ = support.build(text("Old", more='param_str: "2"'), X)
    assert check_gradient(type(layer), X, param_str="2") < 1e-6
    assert check_gradient(layer, X) < 1e-6


def test_in_a_net(rng):
    text_ = f"""
        force_backward: true
        layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ dim: 2 dim: 3 }} }} }}
        layer {{ name: "twice" {text("Old", more='param_str: "2"')} bottom: "x" top: "y" }}
        layer {{ name: "sum" type: "Reduction" bottom: "y" top: "loss" loss_weight: 1 }}"""
    net = caffe.Net(text_format.Parse(text_, caffe_pb2.NetParameter()), caffe.TRAIN)
    assert isinstance(net.layers[1], sys.modules["user_layers"].Old) and net.layers[1].type == "Python"
    for shape in ((2, 3), (4, 3)):
        x = rng.standard_normal(shape)
        net.blobs["x"].reshape(*shape)
        net.blobs["x"].data[...] = x
        net.clear_param_diffs()
        np.testing.assert_allclose(net.forward()["loss"], 6 * x.sum(), rtol=1e-5)
        net.backward()
        np.testing.assert_allclose(net.blobs["x"].diff, np.full(shape, 6.0))
        np.testing.assert_allclose(net.params["twice"][0].diff, [2 * x.sum()], rtol=1e-4)
    assert check_gradient(net.layers[1], x) < 1e-6


def test_constructor_that_forgets_the_base_finds_its_attributes():
    layer, _, _ = support.build(text("Careless", more='param_str: "x"'), X, phase=1)
    assert layer.seen == (1, "x") and layer.name == "L"


def test_error_of_the_user_keeps_type_words_and_traceback():
    layer, bottom, top = support.build(text("Careless"), X)
    with pytest.raises(ZeroDivisionError, match="the user's own words") as caught:
        layer.forward(bottom, top)
    assert caught.value.__notes__ == ["in layer 'L' (Python, user_layers.Careless.forward)"]
    assert "user_layers.py" in "".join(traceback.format_exception(caught.value))
    with pytest.raises(TypeError) as caught:
        support.build(text("NoArguments"), X)
    assert caught.value.__notes__ == ["in layer 'L' (Python, user_layers.NoArguments.__init__)"]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (text("Old", "layers/user_layers.py"), "the folder 'layers' on PYTHONPATH.*module: 'user_layers'"),
        (text("Old", "user_layers.py"), "the folder '.' on PYTHONPATH.*module: 'user_layers'"),
        (text("Old", "C:\\\\nets\\\\user_layers.py"), "the folder 'C:/nets'.*module: 'user_layers'"),
        (text("Old", "user_layer"), "No module named 'user_layer';.*did you mean 'user_layers'"),
        (text("Old", "no_package.user_layer"), "No module named 'no_package'"),
        (text("Older"), "no class 'Older'; its layers: Old, Careless, NoArguments; did you mean 'Old'"),
        (text("Plain"), "must be a class derived from caffe.Layer"),
        (text("caffe"), "must be a class derived from caffe.Layer"),
        (text("Old", ""), "python_param.module must be given"),
        (text(""), "python_param.layer must be given"),
    ],
)
def test_what_cannot_be_found_is_refused_with_the_cure(where, words):
    with pytest.raises(LayerError, match=f"layer 'L' \\(Python\\).*{words}"):
        support.build(where, X)


@pytest.mark.parametrize(
    ("module", "error"), [("broken_layers", ModuleNotFoundError), ("wrong_layers", KeyError)]
)
def test_faults_inside_the_module_pass_with_a_note(module, error):
    with pytest.raises(error) as caught:
        support.build(text("Old", module), X)
    assert caught.value.__notes__ == [f"while importing python_param.module '{module}'"]


def test_share_in_parallel_is_refused_among_ranks():
    shared = text("Old", more='param_str: "1" share_in_parallel: true')
    support.build(shared, X)
    context.set_solver_count(2)
    try:
        with pytest.raises(LayerError, match="share_in_parallel: true cannot be honoured among 2 ranks"):
            support.build(shared, X)
    finally:
        context.set_solver_count(1)
