"""Whole trainings: the CPU's numbers, and what is copied on the way."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe.proto import caffe_pb2
from conftest import use_gpu
from engines.cuda import support

BATCH = 4
LENET = """
name: "LeNet"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 1 dim: 28 dim: 28 } } }
layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 4 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1" param { lr_mult: 1 } param { lr_mult: 2
}
        convolution_param { num_output: 20 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { kernel_size: 2 stride: 2 }
} layer { name: "conv2" type: "Convolution" bottom: "pool1" top: "conv2"
        convolution_param { num_output: 50 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "pool2" type: "Pooling" bottom: "conv2" top: "pool2" pooling_param { kernel_size: 2 stride: 2 }
} layer { name: "ip1" type: "InnerProduct" bottom: "pool2" top: "ip1"
        inner_product_param { num_output: 500 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "drop1" type: "Dropout" bottom: "ip1" top: "ip1" dropout_param { dropout_ratio: 0.4 } }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
        inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""
SOLVER = """
base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 lr_policy: "fixed" random_seed: 1 snapshot_prefix: "lenet"
"""
# Parameters, gradients and histories stay there; the batch goes there.
IMAGES, LABELS = 4 * BATCH * 28 * 28, 4 * BATCH


@pytest.fixture(autouse=True)
def _gpu() -> None:
    use_gpu()


def solver_of(fields: str = SOLVER) -> caffe.SGDSolver:
    param = text_format.Parse(fields, caffe_pb2.SolverParameter())
    text_format.Parse(LENET, param.net_param)
    return caffe.get_solver(param)


def feed(net: caffe.Net, iteration: int) -> None:
    """As a data layer would: no array is kept."""
    rng = np.random.default_rng(iteration)
    labels = rng.integers(0, 10, BATCH)
    images = rng.uniform(0, 0.2, (BATCH, 1, 28, 28))
    images[np.arange(BATCH), 0, labels * 2, :] += 1
    net.blobs["data"].overwrite_cpu_data()[...] = images
    net.blobs["label"].overwrite_cpu_data()[...] = labels


def train(
    monkeypatch: pytest.MonkeyPatch, engine: str, iterations: int, fields: str = SOLVER
) -> caffe.SGDSolver:
    monkeypatch.setenv("CAFFE_ENGINE", engine)
    solver = solver_of(fields)
    solver.losses = []
    for iteration in range(iterations):
        feed(solver.net, iteration)
        solver.step(1)
        solver.losses.append(solver.net.blobs["loss"].cpu_data().item())
    return solver


def test_lenet_trains_as_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = (train(monkeypatch, engine, 5) for engine in ("reference", "cuda"))
    engines = support.engines_of(there.net)
    assert {name for name, engine in engines.items() if engine != "cuda"} == {"data", "label"}
    np.testing.assert_allclose(there.losses, here.losses, rtol=1e-4)
    for a, b in zip(there.net.learnable, here.net.learnable, strict=True):
        want = b.blob.data
        np.testing.assert_allclose(a.blob.data, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("clip", ["", " clip_gradients: 0.5"])
def test_a_step_moves_only_the_batch_and_the_loss(monkeypatch: pytest.MonkeyPatch, clip: str) -> None:
    from caffe.engines.cuda.place import PLACE

    solver = train(monkeypatch, "cuda", 2, SOLVER + clip)
    before = PLACE.counts.copy()
    feed(solver.net, 2)
    solver.step(1)
    copies = PLACE.counts - before
    assert copies["to_device"] == 2 and copies["to_device_bytes"] == IMAGES + LABELS
    norm = 1 if clip else 0
    assert copies["to_host"] == 1 + norm and copies["to_host_bytes"] == 4 * (1 + norm)


def test_snapshots_and_resuming_are_bitwise(monkeypatch: pytest.MonkeyPatch) -> None:
    solver = train(monkeypatch, "cuda", 3)
    solver.snapshot()
    again = solver_of()
    again.restore("lenet_iter_3.solverstate")
    for each in (solver, again):
        feed(each.net, 3)
        each.step(1)
    for a, b in zip(again.net.learnable, solver.net.learnable, strict=True):
        np.testing.assert_array_equal(a.blob.data, b.blob.data)


def test_test_nets_share_parameters_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from caffe.engines.cuda.place import PLACE

    fields = SOLVER + " test_iter: 1 test_interval: 1000 test_initialization: false"
    monkeypatch.setenv("CAFFE_ENGINE", "cuda")
    solver = solver_of(fields)
    [test_net] = solver.test_nets
    for net in (solver.net, test_net):
        feed(net, 0)
    solver.step(1)
    before = PLACE.counts.copy()
    test_net.run_forward()
    copies = PLACE.counts - before
    assert copies["to_device_bytes"] == IMAGES + LABELS


def test_dropout_masks_are_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
    layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 3 dim: 67 } } }
    layer { name: "drop" type: "Dropout" bottom: "x" top: "y" dropout_param { dropout_ratio: 0.3 } }
    """
    tops = []
    for engine in ("reference", "cuda"):
        monkeypatch.setenv("CAFFE_ENGINE", engine)
        caffe.set_random_seed(5)
        net = caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), caffe.TRAIN)
        net.blobs["x"].data[...] = 1
        net.run.iteration = 2**40 + 3
        for _ in range(2):
            net.forward()
        tops.append(net.blobs["y"].data.copy())
    np.testing.assert_array_equal(*tops)


RECURRENT = """
layer {{ name: "x" type: "Input" top: "x" top: "cont" top: "y"
        input_param {{ shape {{ dim: 3 dim: 2 dim: 4 }} shape {{ dim: 3 dim: 2 }}
                       shape {{ dim: 3 dim: 2 dim: 5 }} }} }}
layer {{ name: "it" type: "{kind}" bottom: "x" bottom: "cont" top: "h"
        recurrent_param {{ num_output: 5 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "EuclideanLoss" bottom: "h" bottom: "y" top: "loss" }}
"""


def train_recurrent(
    monkeypatch: pytest.MonkeyPatch, kind: str, engine: str, iterations: int
) -> caffe.SGDSolver:
    monkeypatch.setenv("CAFFE_ENGINE", engine)
    param = text_format.Parse(SOLVER, caffe_pb2.SolverParameter())
    text_format.Parse(RECURRENT.format(kind=kind), param.net_param)
    solver = caffe.get_solver(param)
    for iteration in range(iterations):
        step_recurrent(solver, iteration)
    return solver


def step_recurrent(solver: caffe.SGDSolver, iteration: int) -> None:
    rng = np.random.default_rng(iteration)
    for name, blob in solver.net.blobs.items():
        if name in ("x", "y"):
            blob.overwrite_cpu_data()[...] = rng.normal(size=blob.shape)
    solver.net.blobs["cont"].overwrite_cpu_data()[...] = 1
    solver.step(1)


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_states_that_are_carried_stay_on_the_device(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    from caffe.engines.cuda.place import PLACE

    solver = train_recurrent(monkeypatch, kind, "cuda", 2)
    before = PLACE.counts.copy()
    step_recurrent(solver, 2)
    copies = PLACE.counts - before
    assert copies["to_device"] == 3 and copies["to_device_bytes"] == 4 * (24 + 6 + 30)
    assert copies["to_host"] == 1 and copies["to_host_bytes"] == 4
    wanted = train_recurrent(monkeypatch, kind, "reference", 3)
    for a, b in zip(solver.net.layers[1].carry, wanted.net.layers[1].carry, strict=True):
        assert np.abs(b.cpu_data()).max() > 0.01
        np.testing.assert_allclose(a.cpu_data(), b.cpu_data(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_states_that_are_carried_survive_a_resume(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    solver = train_recurrent(monkeypatch, kind, "cuda", 2)
    solver.snapshot()
    again = train_recurrent(monkeypatch, kind, "cuda", 0)
    again.restore("lenet_iter_2.solverstate")
    for each in (solver, again):
        step_recurrent(each, 2)
    for name in ("h", "loss"):
        np.testing.assert_array_equal(again.net.blobs[name].data, solver.net.blobs[name].data)
    outputs = []
    for forget in (True, False, True):
        if forget:
            solver.net.layers[1].reset()
        solver.net.forward()
        outputs.append(solver.net.blobs["h"].data.copy())
    np.testing.assert_array_equal(outputs[0], outputs[2])
    assert not np.allclose(outputs[0], outputs[1])
