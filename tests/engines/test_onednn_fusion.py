"""Fused steps leave every blob as the reference leaves it, whoever looks when, and whatever changes in
between."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe import kernels
from caffe.errors import CaffeError
from caffe.proto import caffe_pb2

INPUT = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 5 dim: 6 dim: 7 } } }'
CONV = (
    'layer {{ name: "{0}" type: "Convolution" bottom: "{1}" top: "{0}" convolution_param {{ num_output: {2} '
    'kernel_size: 3 pad: 1 weight_filler {{ type: "msra" }} bias_filler {{ type: "uniform" }} }} }}'
)
NORM = (
    'layer {{ name: "{0}_bn" type: "BatchNorm" bottom: "{0}" top: "{0}" }}'
    'layer {{ name: "{0}_scale" type: "Scale" bottom: "{0}" top: "{0}" scale_param {{ bias_term: true '
    'filler {{ type: "uniform" min: 0.5 max: 2 }} bias_filler {{ type: "uniform" }} }} }}'
)
RELU = (
    'layer {{ name: "{0}_relu" type: "ReLU" bottom: "{0}" top: "{0}" relu_param {{ negative_slope: {1} }} }}'
)
LOSS = (
    'layer {{ name: "loss" type: "Reduction" bottom: "{0}" top: "loss" loss_weight: 1 '
    "reduction_param {{ operation: SUMSQ }} }}"
)

CONV_RELU = INPUT + CONV.format("a", "x", 9) + RELU.format("a", 0.1) + CONV.format("b", "a", 4)
NORMALIZED = (
    INPUT + CONV.format("a", "x", 9) + NORM.format("a") + RELU.format("a", 0) + CONV.format("b", "a", 4)
)
NO_RELU = INPUT + CONV.format("a", "x", 9) + NORM.format("a") + CONV.format("b", "a", 4)
PRODUCT = (
    INPUT
    + (
        'layer { name: "b" type: "InnerProduct" bottom: "x" top: "b" inner_product_param { num_output: 7 '
        'weight_filler { type: "msra" } } }'
    )
    + RELU.format("b", 0)
)
RESIDUAL = (
    INPUT
    + CONV.format("a", "x", 9)
    + RELU.format("a", 0)
    + CONV.format("c", "a", 9)
    + NORM.format("c")
    + 'layer { name: "b" type: "Eltwise" bottom: "a" bottom: "c" top: "b" }'
    + RELU.format("b", 0)
)
NETS = {"conv": CONV_RELU, "norm": NORMALIZED, "norm_only": NO_RELU, "product": PRODUCT, "residual": RESIDUAL}


@pytest.fixture(autouse=True)
def _onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernels.engine_ready("onednn"):
        pytest.skip(kernels.engine_reason("onednn"))
    monkeypatch.setenv("CAFFE_ENGINE", "onednn")


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> Iterator:
    """make(text, phase) -> the same net twice, on the reference and on oneDNN, with input and statistics."""

    def make(text: str, phase: int) -> tuple[caffe.Net, caffe.Net]:
        nets = []
        for engine in ("reference", "onednn"):
            monkeypatch.setenv("CAFFE_ENGINE", engine)
            caffe.set_random_seed(3)
            message = text_format.Parse(
                text + (LOSS.format("b") if phase == caffe.TRAIN else ""), caffe_pb2.NetParameter()
            )
            nets.append(caffe.Net(message, phase))
        reference, net = nets
        x = rng.standard_normal(net.blobs["x"].shape)
        for layer in reference.layers:
            if layer.type == "BatchNorm":
                layer.blobs[0].data[...] = rng.standard_normal(layer.blobs[0].shape)
                layer.blobs[1].data[...] = rng.uniform(1, 3, layer.blobs[1].shape)
                layer.blobs[2].data[...] = 2
        for name, blobs in reference.params.items():
            for source, target in zip(blobs, net.params[name], strict=True):
                target.data[...] = source.data
        for each in nets:
            each.blobs["x"].data[...] = x
        gc.collect()
        return reference, net

    yield make


def fused(net: caffe.Net) -> list[str]:
    return [type(step).__name__ for step in net._plan if isinstance(step, kernels.Fused)]


def compare(reference: caffe.Net, net: caffe.Net, diffs: bool) -> None:
    for name, blob in reference.blobs.items():
        assert np.allclose(net.blobs[name].data, blob.data, atol=2e-5, rtol=1e-4), name
        if diffs and name != "x":
            assert np.allclose(net.blobs[name].diff, blob.diff, atol=2e-4, rtol=1e-3), name
    for name, blobs in reference.params.items():
        for i, blob in enumerate(blobs):
            assert np.allclose(net.params[name][i].data, blob.data, atol=2e-5, rtol=1e-4), (name, i)
            if diffs:
                assert np.allclose(net.params[name][i].diff, blob.diff, atol=2e-3, rtol=1e-3), (name, i)


def test_what_is_fused(pair) -> None:
    wanted = {
        "conv": (["FusedWeighted"], ["FusedWeighted"]),
        "norm": (["FusedNormalization"], ["FusedWeighted"]),
        "norm_only": (["FusedNormalization"], ["FusedWeighted"]),
        "product": (["FusedWeighted"], ["FusedWeighted"]),
        "residual": (["FusedWeighted", "FusedNormalization", "FusedSum"], ["FusedWeighted", "FusedWeighted"]),
    }
    for name, (train, test) in wanted.items():
        assert fused(pair(NETS[name], caffe.TRAIN)[1]) == train, name
        assert fused(pair(NETS[name], caffe.TEST)[1]) == test, name


@pytest.mark.parametrize("name", NETS)
def test_training_passes(name: str, pair) -> None:
    reference, net = pair(NETS[name], caffe.TRAIN)
    for _ in range(2):
        for each in (reference, net):
            each.clear_param_diffs()
            each.run_forward()
            each.run_backward()
    compare(reference, net, diffs=True)


@pytest.mark.parametrize("name", NETS)
def test_backward_in_parts_after_a_fused_forward(name: str, pair) -> None:
    reference, net = pair(NETS[name], caffe.TRAIN)
    middle = len(net.layers) // 2
    for each in (reference, net):
        each.clear_param_diffs()
        each.run_forward()
        each.run_backward(len(each.layers) - 1, middle)
        each.run_backward(middle - 1, 0)
    compare(reference, net, diffs=True)


@pytest.mark.parametrize("name", NETS)
def test_a_fused_backward_after_a_forward_in_parts(name: str, pair) -> None:
    reference, net = pair(NETS[name], caffe.TRAIN)
    for each in (reference, net):
        each.run_forward()
        each.clear_param_diffs()
        each.run_forward(0, 2)
        each.run_forward(3, len(each.layers) - 1)
        each.run_backward()
    compare(reference, net, diffs=True)


@pytest.mark.parametrize("name", NETS)
def test_callbacks_see_every_layer(name: str, pair) -> None:
    reference, net = pair(NETS[name], caffe.TRAIN)
    seen: dict[str, list] = {"reference": [], "onednn": []}
    for key, each in zip(seen, (reference, net), strict=True):
        each.after_forward(lambda i, e=each, s=seen[key]: s.append([b.data.copy() for b in e._steps[i].top]))
        each.run_forward()
    for ours, theirs in zip(seen["onednn"], seen["reference"], strict=True):
        assert all(np.allclose(a, b, atol=2e-5, rtol=1e-4) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", NETS)
def test_testing(name: str, pair) -> None:
    reference, net = pair(NETS[name], caffe.TEST)
    for change in range(3):
        for each in (reference, net):
            each.run_forward()
        compare(reference, net, diffs=False)
        layers = [layer for layer in net.layers if layer.blobs]
        layer = layers[change % len(layers)]
        for i, blob in enumerate(layer.blobs):
            blob.data[...] *= 1.5
            reference.params[layer.name][i].data[...] *= 1.5


@pytest.mark.parametrize("name", NETS)
def test_another_batch(name: str, pair, rng: np.random.Generator) -> None:
    reference, net = pair(NETS[name], caffe.TEST)
    for n in (2, 5, 1):
        x = rng.standard_normal((n, *net.blobs["x"].shape[1:]))
        for each in (reference, net):
            each.blobs["x"].reshape(*x.shape)
            each.blobs["x"].data[...] = x
            each.run_forward()
        compare(reference, net, diffs=False)


@pytest.mark.parametrize("name", NETS)
def test_an_empty_batch_in_between(name: str, pair, rng: np.random.Generator) -> None:
    """It runs on NumPy, so that members of groups have other kernels from then on."""
    reference, net = pair(NETS[name], caffe.TRAIN)
    for n in (2, 0, 0, 3, 3):
        x = rng.standard_normal((n, *net.blobs["x"].shape[1:]))
        for each in (reference, net):
            each.blobs["x"].reshape(*x.shape)
            each.blobs["x"].data[...] = x
            each.clear_param_diffs()
            each.run_forward()
            each.run_backward()
        compare(reference, net, diffs=n > 0)


@pytest.mark.parametrize("name", ["norm", "residual"])
def test_backward_in_a_test_net(name: str, pair) -> None:
    text = NETS[name] + LOSS.format("b") + "force_backward: true"
    reference, net = pair(text, caffe.TEST)
    for each in (reference, net):
        each.clear_param_diffs()
        each.run_forward()
        each.run_backward()
    compare(reference, net, diffs=True)
    assert np.allclose(net.blobs["x"].diff, reference.blobs["x"].diff, atol=1e-3, rtol=1e-3)


def test_a_swallowed_top_is_computed_when_read_and_never_wrong(pair) -> None:
    reference, net = pair(RESIDUAL, caffe.TEST)
    reference.run_forward()
    net.run_forward()
    net.params["c"][0].data[...] *= 2  # too late to change what the pass gave
    assert np.allclose(net.blobs["c"].data, reference.blobs["c"].data, atol=2e-5)
    net.params["c"][0].data[...] /= 2
    net.run_forward()
    assert np.allclose(net.blobs["c"].data, reference.blobs["c"].data, atol=2e-5)
    held = net.blobs["c"].data
    gc.collect()
    net.blobs["x"].data[...] *= 2
    reference.blobs["x"].data[...] *= 2
    net.run_forward()
    reference.run_forward()
    assert np.allclose(held, reference.blobs["c"].data, atol=5e-5)


def test_a_dropped_net_is_freed_at_once(pair) -> None:
    _, net = pair(RESIDUAL, caffe.TEST)
    net.run_forward()
    blob, layer = net.blobs["c"], weakref.ref(net.layers[1])
    gc.disable()
    try:
        del net
        assert layer() is None
    finally:
        gc.enable()
    with pytest.raises(CaffeError, match="its net has been deleted"):
        _ = blob.data
