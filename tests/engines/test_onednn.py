"""oneDNN against the reference where the recorded vectors are too small for its fast code: whole blocks of
channels.

Also what belongs to the engine itself: layouts that stay, gradients that add up, statistics, threads, fork.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe import kernels
from caffe.errors import ForkError
from caffe.proto import caffe_pb2

PAIR = tuple[caffe.Net, caffe.Net]


@pytest.fixture(autouse=True)
def _onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernels.engine_ready("onednn"):
        pytest.skip(kernels.engine_reason("onednn"))


def net_of(text: str, engine: str, monkeypatch: pytest.MonkeyPatch, phase: int = caffe.TRAIN) -> caffe.Net:
    monkeypatch.setenv("CAFFE_ENGINE", engine)
    caffe.set_random_seed(5)
    return caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), phase)


def layer_net(shapes: list[tuple[int, ...]], layer: str) -> str:
    dims = " ".join("shape { " + " ".join(f"dim: {d}" for d in s) + " }" for s in shapes)
    tops = " ".join(f'top: "x{i}"' for i in range(len(shapes)))
    bottoms = " ".join(f'bottom: "{f"x{i}" if i else "lead"}"' for i in range(len(shapes)))
    # A convolution before the layer, so that its bottom lies in blocks.
    first = shapes[0]
    lead = (
        'layer { name: "lead" type: "Convolution" bottom: "x0" top: "lead" '
        f"convolution_param {{ num_output: {first[1]} "
        'kernel_size: 1 weight_filler { type: "msra" } } }'
    )
    return (
        f'force_backward: true layer {{ name: "in" type: "Input" {tops} input_param {{ {dims} }} }} {lead} '
        f'layer {{ name: "l" {layer.replace("BOTTOM", bottoms)} }}'
    )


CONV = (
    'type: "Convolution" BOTTOM top: "y" convolution_param { weight_filler { type: "msra" } '
    'bias_filler { type: "uniform" }'
)
POOL = 'type: "Pooling" BOTTOM top: "y" pooling_param'
SOFTMAX_LOSS = 'type: "SoftmaxWithLoss" BOTTOM top: "y"'
RECURRENT = (
    ' recurrent_param { num_output: 8 weight_filler { type: "uniform" min: -0.5 max: 0.5 } '
    'bias_filler { type: "uniform" }'
)
SEQUENCES = [(5, 4, 6), (5, 4)]
IMAGE = (2, 32, 9, 11)
# Channels that fill blocks badly, so that they lie last.
ODD = (2, 20, 9, 11)
CASES = {
    "conv 3x3": ([IMAGE], CONV + " num_output: 48 kernel_size: 3 pad: 1 }"),
    "conv strided, remainder": ([IMAGE], CONV + " num_output: 32 kernel_size: 2 stride: 3 }"),
    "conv dilated": ([IMAGE], CONV + " num_output: 16 kernel_size: 3 dilation: 2 pad: 2 }"),
    "conv groups": ([IMAGE], CONV + " num_output: 64 kernel_size: 3 group: 2 }"),
    "conv groups of odd size": ([(2, 12, 7, 7)], CONV + " num_output: 18 kernel_size: 3 group: 3 }"),
    "conv depthwise": ([IMAGE], CONV + " num_output: 32 kernel_size: 3 group: 32 pad: 1 stride: 2 }"),
    "conv odd channels": ([(2, 19, 7, 7)], CONV + " num_output: 21 kernel_size: 3 bias_term: false }"),
    "conv 1-D": ([(2, 16, 30)], CONV + " num_output: 32 kernel_size: 5 stride: 2 }"),
    "conv 3-D": ([(1, 16, 5, 6, 7)], CONV + " num_output: 16 kernel_size: 3 pad: 1 }"),
    "deconv": ([IMAGE], CONV.replace("Conv", "Deconv") + " num_output: 16 kernel_size: 4 stride: 2 pad: 1 }"),
    "deconv groups": (
        [IMAGE],
        CONV.replace("Conv", "Deconv")
        + " num_output: 32 kernel_size: 4 stride: 2 group: 32 bias_term: false }",
    ),
    "max": ([IMAGE], POOL + " { kernel_size: 3 stride: 2 }"),
    "max padded": ([IMAGE], POOL + " { kernel_size: 3 stride: 2 pad: 1 }"),
    "ave": ([IMAGE], POOL + " { pool: AVE kernel_size: 3 stride: 2 }"),
    "ave padded": ([IMAGE], POOL + " { pool: AVE kernel_size: 3 stride: 2 pad: 1 }"),
    "ave overhanging the padding": ([IMAGE], POOL + " { pool: AVE kernel_size: 4 stride: 3 pad: 1 }"),
    "ave overhanging on one side": (
        [(2, 32, 10, 9)],
        POOL + " { pool: AVE kernel_h: 3 kernel_w: 5 stride: 2 pad: 1 }",
    ),
    "ave overhanging, 3-D": ([(1, 16, 6, 5, 8)], POOL + " { pool: AVE kernel_size: 3 stride: 2 pad: 1 }"),
    "ave overhanging, 1-D": ([(2, 19, 8)], POOL + " { pool: AVE kernel_size: 3 stride: 2 pad: 1 }"),
    "ave global": ([IMAGE], POOL + " { pool: AVE global_pooling: true }"),
    "lrn across": ([IMAGE], 'type: "LRN" BOTTOM top: "y" lrn_param { local_size: 5 alpha: 0.5 k: 2 }'),
    "lrn within": (
        [IMAGE],
        'type: "LRN" BOTTOM top: "y" lrn_param { local_size: 3 alpha: 0.5 norm_region: WITHIN_CHANNEL }',
    ),
    "lrn of another window": ([IMAGE], 'type: "LRN" BOTTOM top: "y" lrn_param { local_size: 3 alpha: 0.5 }'),
    "lrn of few channels": (
        [(2, 3, 9, 11)],
        'type: "LRN" BOTTOM top: "y" lrn_param { local_size: 5 alpha: 0.5 k: 2 }',
    ),
    "lrn within few more": (
        [(2, 21, 9, 11)],
        'type: "LRN" BOTTOM top: "y" lrn_param { local_size: 5 alpha: 0.5 norm_region: WITHIN_CHANNEL }',
    ),
    "batch norm": ([IMAGE], 'type: "BatchNorm" BOTTOM top: "y"'),
    "batch norm global": (
        [IMAGE],
        'type: "BatchNorm" BOTTOM top: "y" batch_norm_param { use_global_stats: true }',
    ),
    "scale": (
        [IMAGE],
        'type: "Scale" BOTTOM top: "y" scale_param { bias_term: true filler { type: "uniform" } }',
    ),
    "bias": ([IMAGE], 'type: "Bias" BOTTOM top: "y" bias_param { filler { type: "uniform" } }'),
    "relu": ([IMAGE], 'type: "ReLU" BOTTOM top: "y" relu_param { negative_slope: 0.2 }'),
    "prelu": ([IMAGE], 'type: "PReLU" BOTTOM top: "y" prelu_param { filler { type: "uniform" } }'),
    "prelu in place": (
        [IMAGE],
        'type: "PReLU" BOTTOM top: "lead" prelu_param { filler { type: "uniform" } }',
    ),
    "prelu shared": ([IMAGE], 'type: "PReLU" BOTTOM top: "y" prelu_param { channel_shared: true }'),
    "prelu shared in place": (
        [(2, 19, 5, 6)],
        'type: "PReLU" BOTTOM top: "lead" prelu_param { channel_shared: true }',
    ),
    "prelu of padded blocks": ([(2, 10, 5, 6)], 'type: "PReLU" BOTTOM top: "y"'),
    "prelu of rows": ([(6, 21)], 'type: "PReLU" BOTTOM top: "y" prelu_param { filler { type: "uniform" } }'),
    "clip": ([IMAGE], 'type: "Clip" BOTTOM top: "y" clip_param { min: 0 max: 0.5 }'),
    "clip of rows": ([(6, 21)], 'type: "Clip" BOTTOM top: "y" clip_param { min: -0.25 max: 0.5 }'),
    "elu": ([IMAGE], 'type: "ELU" BOTTOM top: "y" elu_param { alpha: 0.5 }'),
    "sigmoid": ([IMAGE], 'type: "Sigmoid" BOTTOM top: "y"'),
    "tanh": ([IMAGE], 'type: "TanH" BOTTOM top: "y"'),
    "abs": ([IMAGE], 'type: "AbsVal" BOTTOM top: "y"'),
    "bnll": ([IMAGE], 'type: "BNLL" BOTTOM top: "y"'),
    "swish": ([IMAGE], 'type: "Swish" BOTTOM top: "y" swish_param { beta: 1.5 }'),
    "power": ([IMAGE], 'type: "Power" BOTTOM top: "y" power_param { scale: 3 shift: -1 }'),
    "sum": ([IMAGE, IMAGE], 'type: "Eltwise" BOTTOM top: "y" eltwise_param { coeff: 2 coeff: -1 }'),
    "sum of three": ([IMAGE] * 3, 'type: "Eltwise" BOTTOM top: "y"'),
    "sum of forty": ([(2, 16, 3, 4)] * 40, 'type: "Eltwise" BOTTOM top: "y"'),
    "product": ([IMAGE, IMAGE], 'type: "Eltwise" BOTTOM top: "y" eltwise_param { operation: PROD }'),
    "product of three": ([IMAGE] * 3, 'type: "Eltwise" BOTTOM top: "y" eltwise_param { operation: PROD }'),
    "maximum": ([IMAGE] * 2, 'type: "Eltwise" BOTTOM top: "y" eltwise_param { operation: MAX }'),
    "maximum of three": ([IMAGE] * 3, 'type: "Eltwise" BOTTOM top: "y" eltwise_param { operation: MAX }'),
    "maximum of four rows": (
        [(6, 21)] * 4,
        'type: "Eltwise" BOTTOM top: "y" eltwise_param { operation: MAX }',
    ),
    **{
        f"reduction {operation} from {axis}": (
            [IMAGE],
            'type: "Reduction" BOTTOM top: "y" '
            f"reduction_param {{ operation: {operation} axis: {axis} coeff: 0.5 }}",
        )
        for operation in ("SUM", "ASUM", "SUMSQ", "MEAN")
        for axis in (0, 1)
    },
    "concat": ([IMAGE, (2, 16, 9, 11)], 'type: "Concat" BOTTOM top: "y"'),
    "concat off the blocks": ([(2, 10, 4, 5), (2, 7, 4, 5)], 'type: "Concat" BOTTOM top: "y"'),
    "concat of images": ([IMAGE, IMAGE], 'type: "Concat" BOTTOM top: "y" concat_param { axis: 0 }'),
    "slice": ([IMAGE], 'type: "Slice" BOTTOM top: "y" top: "z"'),
    "slice off the blocks": (
        [IMAGE],
        'type: "Slice" BOTTOM top: "y" top: "z" slice_param { slice_point: 5 }',
    ),
    "dropout": ([IMAGE], 'type: "Dropout" BOTTOM top: "y"'),
    "flatten": ([IMAGE], 'type: "Flatten" BOTTOM top: "y"'),
    "inner product": (
        [IMAGE],
        'type: "InnerProduct" BOTTOM top: "y" inner_product_param { num_output: 33 '
        'weight_filler { type: "msra" } }',
    ),
    "inner product transposed": (
        [IMAGE],
        'type: "InnerProduct" BOTTOM top: "y" inner_product_param { num_output: 33 transpose: true '
        'weight_filler { type: "msra" } }',
    ),
    "softmax": ([IMAGE], 'type: "Softmax" BOTTOM top: "y"'),
    "lstm": (SEQUENCES, 'type: "LSTM" BOTTOM top: "y"' + RECURRENT + " }"),
    "lstm with what each step sees": (
        [*SEQUENCES, (4, 7)],
        'type: "LSTM" BOTTOM top: "y"' + RECURRENT + " }",
    ),
    "lstm with states": (
        [*SEQUENCES, (1, 4, 8), (1, 4, 8)],
        'type: "LSTM" BOTTOM top: "y" top: "z" top: "cell"' + RECURRENT + " expose_hidden: true }",
    ),
    "rnn": (SEQUENCES, 'type: "RNN" BOTTOM top: "y"' + RECURRENT + " }"),
    "rnn with what each step sees, and states": (
        [*SEQUENCES, (4, 7), (1, 4, 8)],
        'type: "RNN" BOTTOM top: "y" top: "z"' + RECURRENT + " expose_hidden: true }",
    ),
    "rnn of one": ([(3, 1, 6), (3, 1)], 'type: "RNN" BOTTOM top: "y"' + RECURRENT + " }"),
    "loss in blocks": ([IMAGE, (2, 1, 9, 11)], SOFTMAX_LOSS),
    "loss in padded blocks, ignored": (
        [(2, 21, 9, 11), (2, 9, 11)],
        SOFTMAX_LOSS + ' top: "z" loss_param { ignore_label: 3 }',
    ),
    "loss of rows, both tops": ([(6, 10), (6,)], SOFTMAX_LOSS + ' top: "z"'),
    "loss of rows, ignored": (
        [(6, 10), (6,)],
        SOFTMAX_LOSS + " loss_param { ignore_label: 1 normalization: FULL }",
    ),
    "loss along the last axis": (
        [(3, 4, 5, 7), (3, 4, 5)],
        SOFTMAX_LOSS + " softmax_param { axis: -1 } loss_param { normalization: BATCH_SIZE }",
    ),
    "loss along another axis, ignored": (
        [(3, 4, 5, 7), (3, 4, 7)],
        SOFTMAX_LOSS
        + ' top: "z" softmax_param { axis: 2 } loss_param { ignore_label: 0 normalization: NONE }',
    ),
}


CASES |= {
    f"{case}, channels last": ([ODD if s is IMAGE else s for s in shapes], layer)
    for case, (shapes, layer) in CASES.items()
    if IMAGE in shapes and "group: 32" not in layer
}


def labels_of(case: str, rng: np.random.Generator) -> np.ndarray | None:
    """What the second bottom holds where it is labels, or tells where sequences begin."""
    shapes, layer = CASES[case]
    if "recurrent_param" in layer:
        return rng.integers(0, 2, shapes[1])
    if "SoftmaxWithLoss" not in layer:
        return None
    axis = -1 if "axis: -1" in layer else 2 if "axis: 2" in layer else 1
    return rng.integers(0, shapes[0][axis], shapes[1])


@pytest.mark.parametrize("count", [2, 3, 5])
def test_ties_of_maxima_are_settled_as_in_the_layer(
    count: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    tops = " ".join(f'top: "x{i}"' for i in range(count))
    text = (
        f'force_backward: true layer {{ name: "in" type: "Input" {tops} '
        "input_param { shape { dim: 200 } } } "
        f'layer {{ name: "l" type: "Eltwise" {tops.replace("top", "bottom")} top: "y" '
        "eltwise_param { operation: MAX } }"
    )
    nets = [net_of(text, engine, monkeypatch) for engine in ("reference", "onednn")]
    values = rng.integers(0, 3, (count, 200))
    for net in nets:
        for i in range(count):
            net.blobs[f"x{i}"].data[...] = values[i]
        net.run_forward()
        net.blobs["y"].diff[...] = np.arange(200)
        net.run_backward()
    assert nets[1]._steps[-1].kernel.engine == "onednn"
    for i in range(count):
        assert np.array_equal(nets[1].blobs[f"x{i}"].diff, nets[0].blobs[f"x{i}"].diff)


@pytest.mark.parametrize("lower", [-0.25, 0])
def test_gradients_pass_a_clip_at_its_bounds(lower: float, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        'force_backward: true layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 6 } } } '
        f'layer {{ name: "l" type: "Clip" bottom: "x" top: "y" clip_param {{ min: {lower} max: 0.5 }} }}'
    )
    net = net_of(text, "onednn", monkeypatch)
    assert net._steps[-1].kernel.engine == "onednn"
    net.blobs["x"].data[...] = [lower, 0.5, 0.25, 1, lower - 1e-6, -3]
    net.run_forward()
    net.blobs["y"].diff[...] = 2
    net.run_backward()
    assert net.blobs["y"].data.tolist() == [lower, 0.5, 0.25, 0.5, lower, lower]
    assert net.blobs["x"].diff.tolist() == [2, 2, 2, 0, 0, 0]


@pytest.mark.parametrize("case", ["lstm", "rnn"])
def test_weights_of_steps_are_laid_out_anew_when_they_have_changed(
    case: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    nets = [net_of(layer_net(*CASES[case]), engine, monkeypatch) for engine in ("reference", "onednn")]
    x = rng.standard_normal(nets[0].blobs["x0"].shape)
    held = [net.layers[-1].blobs[2].data for net in nets]
    for factor in (1, 2, 0.5):
        for net, weights in zip(nets, held, strict=True):
            weights *= factor
            net.blobs["x0"].data[...], net.blobs["x1"].data[...] = x, 1
            net.run_forward()
            net.blobs["y"].diff[...] = 1
            net.run_backward()
        close(nets[1].blobs["y"].data, nets[0].blobs["y"].data, f"times {factor}")
        close(nets[1].blobs["x0"].diff, nets[0].blobs["x0"].diff, f"times {factor}")


@pytest.mark.parametrize("phase", [caffe.TRAIN, caffe.TEST], ids=["train", "test"])
@pytest.mark.parametrize("case", CASES)
def test_layer_against_the_reference(
    case: str, phase: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    text = layer_net(*CASES[case])
    reference, net = (net_of(text, engine, monkeypatch, phase) for engine in ("reference", "onednn"))
    inputs = {name: rng.standard_normal(reference.blobs[name].shape) for name in reference.inputs}
    labels = labels_of(case, rng)
    if labels is not None:
        inputs["x1"] = labels
    for _ in range(2):  # the second pass adds to the first one's gradients
        for each in (reference, net):
            if case.startswith("batch norm global"):
                each.layers[-1].blobs[1].data[...] = 2
                each.layers[-1].blobs[2].data[...] = 1
            each.run.iteration, each.run.sub_iteration = 0, -1
            for name, values in inputs.items():
                each.blobs[name].data[...] = values
            each.run_forward()
            for name in ("y", "z"):
                if name in each.blobs:
                    each.blobs[name].diff[...] = np.cos(np.arange(each.blobs[name].count)).reshape(
                        each.blobs[name].shape
                    )
            each.run_backward()
    for name in reference.blobs:
        close(net.blobs[name].data, reference.blobs[name].data, name)
        close(net.blobs[name].diff, reference.blobs[name].diff, f"{name} diff")
    for name, blobs in reference.params.items():
        for i, blob in enumerate(blobs):
            close(net.params[name][i].data, blob.data, f"{name} {i}")
            close(net.params[name][i].diff, blob.diff, f"{name} {i} diff")


def close(ours: np.ndarray, theirs: np.ndarray, what: str) -> None:
    assert np.allclose(ours, theirs, rtol=1e-3, atol=1e-5 * max(1.0, float(np.abs(theirs).max()))), what


def test_the_layers_of_convolutional_nets_have_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    fallen = set()
    for case, (shapes, layer) in CASES.items():
        net = net_of(layer_net(shapes, layer), "onednn", monkeypatch)
        if net._steps[-1].kernel.engine != "onednn":
            fallen.add(case)
    assert fallen == {"lrn within, channels last", "lrn of few channels", "lrn within few more"}


LENET = """
layer { name: "in" type: "Input" top: "x" top: "t"
        input_param { shape { dim: 4 dim: 1 dim: 20 dim: 20 } shape { dim: 4 } } }
layer { name: "c1" type: "Convolution" bottom: "x" top: "c1"
        convolution_param { num_output: 20 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "p1" type: "Pooling" bottom: "c1" top: "p1" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "c2" type: "Convolution" bottom: "p1" top: "c2"
        convolution_param { num_output: 50 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "c2" top: "ip"
        inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "t" top: "loss" }
"""


def solver_of(engine: str, monkeypatch: pytest.MonkeyPatch, **recipe) -> caffe.SGDSolver:
    monkeypatch.setenv("CAFFE_ENGINE", engine)
    param = caffe_pb2.SolverParameter(
        base_lr=0.01,
        lr_policy="fixed",
        momentum=0.9,
        weight_decay=0.01,
        snapshot_after_train=False,
        random_seed=3,
    )
    param.MergeFrom(caffe_pb2.SolverParameter(**recipe))
    text_format.Parse(LENET, param.net_param)
    solver = caffe.get_solver(param)
    rng = np.random.default_rng(2)
    solver.net.blobs["x"].data[...] = rng.standard_normal((4, 1, 20, 20))
    solver.net.blobs["t"].data[...] = [1, 2, 3, 4]
    return solver


@pytest.mark.parametrize(
    "recipe",
    [{}, {"iter_size": 3}, {"clip_gradients": 0.1}, {"regularization_type": "L1"}]
    + [{"type": t} for t in ("Nesterov", "AdaDelta", "Adam")]
    # A delta of some size, since rounding decides the sign of updates where gradients are next to nothing.
    + [{"type": t, "momentum": 0, "delta": 0.01} for t in ("AdaGrad", "RMSProp")]
    + [{"type": "Adam", "delta": 0}],
    ids=str,
)
def test_training_against_the_reference(recipe: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    solvers = [solver_of(engine, monkeypatch, **recipe) for engine in ("reference", "onednn")]
    for solver in solvers:
        if recipe.get("delta") == 0:  # elements without any gradient would be 0/0 in the original, too
            solver.net.blobs["x"].data[...] += 1
        solver.step(4)
    for ours, theirs in zip(solvers[1].net.learnable, solvers[0].net.learnable, strict=True):
        close(ours.blob.data, theirs.blob.data, ours.name)
    for ours, theirs in zip(solvers[1].history, solvers[0].history, strict=True):
        close(ours.data, theirs.data, "history")


def test_training_is_the_same_from_run_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for _ in range(2):
        solver = solver_of("onednn", monkeypatch)
        solver.step(5)
        runs.append([p.blob.data.copy() for p in solver.net.learnable])
    assert all(np.array_equal(a, b) for a, b in zip(*runs, strict=True))


def test_an_iteration_moves_nothing_between_layouts_but_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    from caffe.engines.onednn.place import PLACE

    solver = solver_of("onednn", monkeypatch)
    solver.step(2)
    before = dict(PLACE.counts)
    solver.step(3)
    moved = {kind: count - before.get(kind, 0) for kind, count in PLACE.counts.items()}
    # Backward to the first pooling wants the second convolution's weights in another layout.
    assert moved.pop("reorder") <= 3 and not any(moved.values())


def test_statistics_are_as_good_as_two_float32_passes(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    text = layer_net(
        [(8, 32, 40, 40)], 'type: "BatchNorm" BOTTOM top: "y" batch_norm_param { moving_average_fraction: 0 }'
    )
    net = net_of(text, "onednn", monkeypatch)
    x = (rng.standard_normal((8, 32, 40, 40)) + 10).astype(np.float32)
    net.layer_dict["lead"].blobs[0].data[...] = np.eye(32).reshape(32, 32, 1, 1)
    net.blobs["x0"].data[...] = x
    net.run_forward()
    exact = x.astype(np.float64)
    count = x.size / 32
    assert np.allclose(net.layers[-1].blobs[0].data, exact.mean((0, 2, 3)), rtol=1e-5)
    variance = exact.var((0, 2, 3)) * count / (count - 1)
    assert np.allclose(net.layers[-1].blobs[1].data, variance, rtol=1e-4)


def test_threads_run_nets_that_share_parameters(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    text = layer_net(*CASES["conv 3x3"])
    nets = [net_of(text, "onednn", monkeypatch, caffe.TEST) for _ in range(4)]
    for net in nets[1:]:
        net.share_with(nets[0])
    x = rng.standard_normal(IMAGE)
    for net in nets:
        net.blobs["x0"].data[...] = x
    faults: list[BaseException] = []

    def work(net: caffe.Net) -> None:
        try:
            for _ in range(20):
                net.run_forward()
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(net,)) for net in nets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    results = [net.blobs["y"].data for net in nets]
    assert all(np.array_equal(results[0], other) for other in results[1:])


def _in_child(queue, work: Callable[[], None]) -> None:
    try:
        work()
        queue.put("ran")
    except ForkError as error:
        queue.put(str(error))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
def test_a_forked_child_raises_and_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    net = net_of(layer_net(*CASES["conv 3x3"]), "onednn", monkeypatch)
    net.run_forward()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue, net.run_forward))
    child.start()
    answer = queue.get(timeout=60)
    child.join(60)
    assert "forked" in answer and "spawn" in answer


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's list of what is loaded")
def test_importing_caffe_loads_no_library() -> None:
    code = "import caffe; print('libdnnl' in open('/proc/self/maps').read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_absent_library_is_named_with_its_cure() -> None:
    code = (
        "from caffe import kernels; import caffe; "
        "print(kernels.engine_ready('onednn'), kernels.engine_reason('onednn'))"
    )
    environment = dict(os.environ, CAFFE_LIBDNNL="/nowhere/libdnnl.so.3")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.startswith("False") and "pip install onednn-cpu-gomp" in done.stdout


@pytest.mark.parametrize("readers", [2, 5, 40])
def test_gradients_of_many_readers(
    readers: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    text = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 5 dim: 6 } } }'
    text += (
        'layer { name: "a" type: "Convolution" bottom: "x" top: "a" convolution_param { num_output: 16 '
        'kernel_size: 3 weight_filler { type: "msra" } } }'
    )
    for i in range(readers):
        text += (
            f'layer {{ name: "r{i}" type: "Power" bottom: "a" top: "r{i}" power_param {{ scale: {1 + i} }} }}'
            f'layer {{ name: "l{i}" type: "Reduction" bottom: "r{i}" top: "l{i}" loss_weight: 1 '
            "reduction_param { operation: SUMSQ } }"
        )
    reference, net = (net_of(text, engine, monkeypatch) for engine in ("reference", "onednn"))
    x = rng.standard_normal((2, 3, 5, 6))
    for each in (reference, net):
        each.blobs["x"].data[...] = x
        each.run_forward()
        each.run_backward()
    close(net.params["a"][0].diff, reference.params["a"][0].diff, "a")


def test_large_parameters_are_held_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAFFE_ENGINE", "onednn")
    recipe = caffe_pb2.SolverParameter(
        base_lr=0.1, lr_policy="fixed", momentum=0.9, snapshot_after_train=False
    )
    text_format.Parse(
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 4 dim: 300 } } }'
        'layer { name: "f" type: "InnerProduct" bottom: "x" top: "f" inner_product_param { num_output: 400 '
        'weight_filler { type: "xavier" } } }'
        'layer { name: "l" type: "Reduction" bottom: "f" top: "l" loss_weight: 1 '
        "reduction_param { operation: SUMSQ } }",
        recipe.net_param,
    )
    solver = caffe.get_solver(recipe)
    solver.net.blobs["x"].data[...] = 1
    weights = solver.net.params["f"][0]
    held = weights.data
    solver.step(1)
    assert weights.data_mem.host is not None  # somebody looks
    before = held.copy()
    del held
    solver.step(1)
    assert weights.data_mem.host is None
    now = weights.data
    assert not np.array_equal(now, before)
    assert np.array_equal(now, weights.cpu_data())


def test_a_parameter_that_is_not_finite_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CAFFE_ENGINE", "onednn")
    recipe = caffe_pb2.SolverParameter(
        base_lr=0.01, lr_policy="fixed", momentum=0.9, display=2, max_iter=4, snapshot_after_train=False
    )
    text_format.Parse(
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }'
        'layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 16 '
        'kernel_size: 3 weight_filler { type: "msra" } } }'
        'layer { name: "r" type: "ReLU" bottom: "c" top: "c" }'
        'layer { name: "l" type: "Reduction" bottom: "c" top: "l" loss_weight: 1 '
        "reduction_param { operation: SUMSQ } }",
        recipe.net_param,
    )
    solver = caffe.get_solver(recipe)
    solver.net.blobs["x"].data[...] = 1
    solver.step(1)
    solver.net.params["c"][0].data[0, 0, 0, 0] = np.nan
    with caplog.at_level("WARNING", logger="caffe"):
        solver.solve()
    (message,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert "layer 'c' (Convolution), parameter 0: nan at [0, " in message
    assert np.isfinite(solver.smoothed_loss) == ("not all parameters are finite" in message)


def test_reorders_are_counted_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from caffe.engines.onednn.place import PLACE

    net = net_of(layer_net([IMAGE], CONV + " num_output: 48 kernel_size: 3 pad: 1 }"), "onednn", monkeypatch)
    net.forward()
    before = PLACE.counts["to_host"]
    with caplog.at_level("DEBUG", logger="caffe.engine"):
        net.blobs["lead"].data.sum()
    assert PLACE.counts["to_host"] == before + 1
    assert f"to_host number {before + 1}: <MemoryDesc aBcd" in caplog.text
    caplog.clear()
    with caplog.at_level("INFO", logger="caffe.engine"):
        net.forward()
        net.blobs["lead"].data.sum()
    assert not caplog.text
