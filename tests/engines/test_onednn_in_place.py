"""Layers that work in place, on oneDNN and as the reference does."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe import kernels
from caffe.proto import caffe_pb2


@pytest.fixture(autouse=True)
def _onednn() -> None:
    if not kernels.engine_ready("onednn"):
        pytest.skip(kernels.engine_reason("onednn"))


def net_of(text: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> caffe.Net:
    monkeypatch.setenv("CAFFE_ENGINE", engine)
    caffe.set_random_seed(5)
    return caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), caffe.TRAIN)


def close(ours: np.ndarray, theirs: np.ndarray, what: str) -> None:
    assert np.allclose(ours, theirs, rtol=1e-3, atol=1e-5 * max(1.0, float(np.abs(theirs).max()))), what


IN_PLACE = {
    "dropout": 'type: "Dropout"',
    "dropout of nothing": 'type: "Dropout" dropout_param { dropout_ratio: 0 }',
    "relu": 'type: "ReLU"',
    "scale": 'type: "Scale" scale_param { bias_term: true filler { value: 2 } }',
    "bias": 'type: "Bias" bias_param { filler { value: 2 } }',
    "batch norm": 'type: "BatchNorm"',
    "power": 'type: "Power" power_param { scale: 3 shift: 1 }',
    "tanh": 'type: "TanH"',
    "sigmoid": 'type: "Sigmoid"',
    "elu": 'type: "ELU"',
    "prelu": 'type: "PReLU" prelu_param { filler { type: "uniform" } }',
    "prelu of one slope": 'type: "PReLU" prelu_param { channel_shared: true }',
}


@pytest.mark.parametrize("above", ["Exp", "MVN", "LRN"])
@pytest.mark.parametrize("below", ["Exp", "Convolution"])
@pytest.mark.parametrize("case", IN_PLACE)
def test_between_layers_that_the_engine_has_not(
    case: str, below: str, above: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host alone then knows what the layer is to change."""
    lead = (
        'convolution_param { num_output: 3 kernel_size: 1 bias_term: false weight_filler { type: "msra" } }'
    )
    text = (
        'force_backward: true layer { name: "in" type: "Input" top: "x" '
        "input_param { shape { dim: 4 dim: 3 dim: 6 dim: 6 } } } "
        f'layer {{ name: "b" type: "{below}" bottom: "x" top: "y" {lead} }} '
        f'layer {{ name: "l" {IN_PLACE[case]} bottom: "y" top: "y" }} '
        f'layer {{ name: "a" type: "{above}" bottom: "y" top: "z" }} '
        'layer { name: "p" type: "InnerProduct" bottom: "z" top: "loss" loss_weight: 1 '
        'inner_product_param { num_output: 1 weight_filler { type: "gaussian" } } }'
    )
    nets = [net_of(text, engine, monkeypatch) for engine in ("onednn", "reference")]
    for step in range(2):
        for net in nets:
            net.blobs["x"].data[...] = np.random.default_rng(step).normal(size=(4, 3, 6, 6)) / 2
            net.clear_param_diffs()
            net.forward()
            net.backward()
        ours, theirs = nets
        for name in ("y", "z"):
            close(ours.blobs[name].data, theirs.blobs[name].data, name)
        close(ours.blobs["x"].diff, theirs.blobs["x"].diff, "x's gradient")
        for layer, blobs in theirs.params.items():
            for i, blob in enumerate(blobs):
                close(ours.params[layer][i].diff, blob.diff, f"{layer} {i}")
