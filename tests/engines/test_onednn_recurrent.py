"""Training a recurrent net on oneDNN, whose weights change from step to step, as the reference trains it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe import kernels
from caffe.proto import caffe_pb2

FILLER = 'weight_filler { type: "uniform" min: -0.3 max: 0.3 }'
NET = f"""
layer {{ name: "in" type: "Input" top: "x" top: "cont" top: "label" input_param {{
         shape {{ dim: 6 dim: 4 dim: 5 }} shape {{ dim: 6 dim: 4 }} shape {{ dim: 6 dim: 4 }} }} }}
layer {{ name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "h"
         recurrent_param {{ num_output: 8 {FILLER} }} }}
layer {{ name: "rnn" type: "RNN" bottom: "h" bottom: "cont" top: "o"
         recurrent_param {{ num_output: 7 {FILLER} }} }}
layer {{ name: "slopes" type: "PReLU" bottom: "o" top: "o" }}
layer {{ name: "ip" type: "InnerProduct" bottom: "o" top: "ip"
         inner_product_param {{ axis: 2 num_output: 3 {FILLER} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss"
         softmax_param {{ axis: 2 }} loss_param {{ ignore_label: 2 }} }}
"""


def trained(engine: str, monkeypatch: pytest.MonkeyPatch, recipe: dict) -> Any:
    monkeypatch.setenv("CAFFE_ENGINE", engine)
    param = caffe_pb2.SolverParameter(
        base_lr=0.1,
        lr_policy="fixed",
        momentum=0.9,
        weight_decay=0.01,
        random_seed=3,
        snapshot_after_train=False,
    )
    param.MergeFrom(caffe_pb2.SolverParameter(**recipe))
    text_format.Parse(NET, param.net_param)
    solver = caffe.get_solver(param)
    rng = np.random.default_rng(1)
    solver.net.blobs["x"].data[...] = rng.standard_normal((6, 4, 5))
    solver.net.blobs["cont"].data[...] = rng.random((6, 4)) > 0.3
    solver.net.blobs["label"].data[...] = rng.integers(0, 3, (6, 4))
    solver.step(8)
    return solver


@pytest.mark.parametrize("recipe", [{}, {"iter_size": 3}, {"type": "Adam"}, {"clip_gradients": 0.1}], ids=str)
def test_recurrent_nets_train_as_on_the_reference(recipe: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernels.engine_ready("onednn"):
        pytest.skip(kernels.engine_reason("onednn"))
    theirs, ours = (trained(engine, monkeypatch, recipe) for engine in ("reference", "onednn"))
    assert {step.kernel.engine for step in ours.net._steps[1:]} == {"onednn"}
    for a, b in zip(ours.net.learnable, theirs.net.learnable, strict=True):
        assert np.allclose(a.blob.data, b.blob.data, rtol=1e-4, atol=1e-5), a.name
    assert np.isclose(float(ours.net.blobs["loss"].data), float(theirs.net.blobs["loss"].data), rtol=1e-4)
