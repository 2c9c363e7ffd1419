"""What scripts call on a net, and what it answers to wrong calls."""

from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
import caffe.draw
from caffe.errors import CopyError, NetError, ShapeError
from caffe.proto import caffe_pb2

LOSSES = """
layer { name: "in" type: "Input" top: "x" top: "label"
        input_param { shape { dim: 4 dim: 6 } shape { dim: 4 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" }
layer { name: "square" type: "EuclideanLoss" bottom: "ip" bottom: "ip" loss_weight: 2 }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }
"""


def net_of(text: str = LOSSES, phase: int = caffe.TRAIN) -> caffe.Net:
    return caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), phase)


def test_tops_that_nobody_named_have_indices_and_a_name() -> None:
    """As in the original: pycaffe's blobs are dict(zip(_blob_names, _blobs))."""
    net = net_of()
    assert net._blob_names.count("(automatic)") == 2
    assert dict(zip(net._blob_names, net._blobs, strict=True)) == net.blobs
    assert net.top_names["loss"] == net.top_names["square"] == ["(automatic)"]
    for k, layer in enumerate(net._layer_names):
        assert [net._blob_names[i] for i in net._top_ids(k)] == net.top_names[layer]
        assert [net._blob_names[i] for i in net._bottom_ids(k)] == net.bottom_names[layer]
    assert [net._blob_names[i] for i in net._outputs] == net.outputs == ["accuracy"]
    assert [net._blob_names[i] for i in net._inputs] == net.inputs == ["x", "label"]
    assert [w for w in net._blob_loss_weights if w] == [1, 2]
    assert net.blob_loss_weights == dict(zip(net._blob_names, net._blob_loss_weights, strict=True))


def test_a_loss_without_a_named_top_is_run_drawn_and_summed_up() -> None:
    net = net_of()
    assert net.forward(end="loss")["(automatic)"] == pytest.approx(math.log(3))
    assert net.forward(end="square")["(automatic)"] == 0
    assert "(automatic)" in net._repr_html_()
    for drawn in (net, net.param):
        assert b"SoftmaxWithLoss" in caffe.draw.draw_net(drawn, "LR", "html")


def test_what_forward_and_backward_refuse() -> None:
    net = net_of()
    cases = {
        r"blobs must be names, such as blobs=\['ip'\]": lambda: net.forward("ip"),
        r"diffs must be names, such as diffs=\['ip'\]": lambda: net.backward(diffs="ip"),
        "Unknown layer '1'": lambda: net.forward(start=1),  # type: ignore[arg-type]
        "Unknown layer 'los'; did you mean 'loss'": lambda: net.forward(end="los"),
        "Unknown blob '2'": lambda: net.forward([2]),  # type: ignore[list-item]
        "forward: layer 'loss' comes after layer 'ip'": lambda: net.forward(start="loss", end="ip"),
        "backward: layer 'ip' comes before layer 'loss'": lambda: net.backward(start="ip", end="loss"),
        "do not match net inputs.* did you mean 'end'": lambda: net.forward(ende="ip"),
        "do not match net inputs.* did you mean 'x'": lambda: net.forward(X=np.zeros((4, 6))),
        "Diff is not batch sized: 'accuracy'": lambda: net.backward(accuracy=np.zeros(3)),
    }
    for words, call in cases.items():
        with pytest.raises(NetError, match=words):
            call()


@pytest.mark.parametrize("shape", [(3, 3), (6, 8), (6, 3)])
def test_a_reshaped_parameter_is_no_other_layer(engine: str, shape: tuple[int, int]) -> None:
    net = net_of()
    before = net.forward(x=np.ones((4, 6)), label=np.zeros(4), blobs=["ip"])["ip"].copy()
    net.params["ip"][0].reshape(*shape)
    for run in (net.forward, net.reshape):
        with pytest.raises(
            ShapeError, match=rf"'ip' .*parameter 0 was reshaped to \({shape[0]}, {shape[1]}\)"
        ):
            run()
    net.params["ip"][0].reshape(3, 6)
    if shape != (6, 8):  # larger: in other memory, which begins with zeros
        np.testing.assert_array_equal(net.forward(["ip"])["ip"], before)


CONVOLVED = """
force_backward: true
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 16 dim: 9 dim: 9 } } }
layer { name: "a" type: "Convolution" bottom: "x" top: "a"
        convolution_param { num_output: 16 kernel_size: 3 } }
layer { name: "b" type: "Convolution" bottom: "a" top: "b"
        convolution_param { num_output: 16 kernel_size: 3 } }
"""


@pytest.mark.parametrize("phase", [caffe.TRAIN, caffe.TEST])
@pytest.mark.parametrize("passes", [1, 2, 4])
def test_a_reshaped_parameter_is_refused_in_all_passes(engine: str, phase: int, passes: int) -> None:
    """Also in one that is repeated, where oneDNN would read and write behind the end of memory."""
    net = caffe.Net(text_format.Parse(CONVOLVED, caffe_pb2.NetParameter()), phase)
    for _ in range(passes):
        net.forward()
    for _ in range(2):
        net.params["b"][0].reshape(16, 16, 1, 2)
        for run in (net.backward, net.forward, net.backward):
            with pytest.raises(ShapeError, match=r"'b' .*parameter 0 was reshaped to \(16, 16, 1, 2\)"):
                run()
        net.params["b"][0].reshape(16, 16, 3, 3)
        net.forward()
        net.backward()


@pytest.mark.parametrize(
    ("after", "blob"),
    [("", "x"), ("", "a"), ("", "b"), ("sum", "s"), ("norm", "b"), ("norm", "x")],
)
def test_backward_needs_the_shapes_of_forward(engine: str, after: str, blob: str) -> None:
    """An engine would read and write behind the end of memory."""
    more = {
        "": "",
        "sum": 'layer { name: "s" type: "Eltwise" bottom: "a" bottom: "x" top: "s" } '
        'layer { name: "r" type: "ReLU" bottom: "s" top: "s" }',
        "norm": 'layer { name: "n" type: "BatchNorm" bottom: "b" top: "b" } '
        'layer { name: "c" type: "Scale" bottom: "b" top: "b" scale_param { bias_term: true } } '
        'layer { name: "r" type: "ReLU" bottom: "b" top: "b" }',
    }[after]
    text = CONVOLVED.replace("kernel_size: 3", "kernel_size: 3 pad: 1") + more
    net = caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), caffe.TRAIN)
    for _ in range(3):
        net.forward()
        net.backward()
    net.blobs[blob].reshape(1, 16, 2, 2)
    with pytest.raises(ShapeError, match=r"was reshaped from \(2, 16, 9, 9\) to \(1, 16, 2, 2\)"):
        net.backward()
    net.blobs["x"].reshape(2, 16, 9, 9)
    net.forward()
    net.backward()


def test_nets_solvers_and_layers_are_not_copied() -> None:
    net = net_of()
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(CopyError, match=r"net\.to_proto\(\).*net\.save") as caught:
            duplicate(net)
        assert isinstance(caught.value, TypeError)
    for duplicate in (copy.deepcopy, pickle.dumps):
        with pytest.raises(CopyError, match=r"blob\.data\.copy\(\)"):
            duplicate(net.layers[1])
    Path("net.prototxt").write_text(LOSSES)
    Path("solver.prototxt").write_text(
        'net: "net.prototxt" base_lr: 1 lr_policy: "fixed" snapshot_prefix: "s"'
    )
    with pytest.raises(CopyError, match=r"solver\.snapshot\(\)"):
        pickle.dumps(caffe.get_solver("solver.prototxt"))


def test_parameters_are_copied_as_blobs_of_their_own(engine: str, rng: np.random.Generator) -> None:
    """A script's way to keep the weights from before."""
    net = net_of()
    net.params["ip"][0].data[...] = rng.standard_normal((3, 6))
    net.forward(x=rng.standard_normal((4, 6)), label=np.arange(4) % 3)
    net.backward()
    weights = net.params["ip"][0]
    before, gradient = weights.data.copy(), weights.diff.copy()
    assert np.abs(gradient).max() > 0
    for duplicate in (copy.deepcopy(net.params), pickle.loads(pickle.dumps(net.params))):
        weights.data[...] = 0
        copied = duplicate["ip"][0]
        assert copied.shape == (3, 6) and copied.dtype == np.float32
        np.testing.assert_array_equal(copied.data, before)
        np.testing.assert_array_equal(copied.diff, gradient)
        weights.data[...] = before


@pytest.mark.parametrize(
    ("name", "today"),
    [
        ("set_phase_test", r"caffe.Net\(model, weights, caffe.TEST\)"),
        ("set_mode_gpu", r"caffe.set_mode_gpu\(\)"),
        ("set_raw_scale", r"caffe.io.Transformer\(inputs\).set_raw_scale"),
        ("preprocess", "caffe.io.Transformer"),
    ],
)
def test_names_of_nets_before_1_0_say_what_they_are_now(name: str, today: str) -> None:
    net = caffe.Net(caffe.proto.caffe_pb2.NetParameter(), caffe.TEST)
    with pytest.raises(
        caffe.CaffeError, match=f"net.{name} is of Caffe before 1.0; since then it is {today}"
    ):
        getattr(net, name)
    assert not hasattr(net, name)
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'weights'"):
        net.weights  # type: ignore[attr-defined] # noqa: B018
