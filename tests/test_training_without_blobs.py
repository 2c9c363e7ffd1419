"""Training nets that give up values which nobody reads again: the same bits, less memory, an error for
whoever looks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe import debug_info, net_memory
from caffe.errors import NetError
from caffe.places import Pool
from caffe.proto import caffe_pb2
from caffe.synced_mem import SyncedMem
from test_net_memory import held

CHANNELS = 20  # fills no blocks of 16 or 8
SIZE = 8


def layer(type: str, bottom: str, top: str, fields: str = "", name: str = "") -> str:
    ends = "".join(f' bottom: "{b}"' for b in bottom.split()) + "".join(f' top: "{t}"' for t in top.split())
    return f'layer {{ name: "{name or top.split()[0]}" type: "{type}"{ends} {fields} }}\n'


def convolution(bottom: str, top: str, size: int = 3) -> str:
    fields = f'num_output: {CHANNELS} kernel_size: {size} pad: {size // 2} weight_filler {{ type: "msra" }}'
    return layer("Convolution", bottom, top, f"convolution_param {{ {fields} }}")


def normalized(blob: str, relu: bool = True) -> str:
    text = layer("BatchNorm", blob, blob, name=f"{blob}_bn")
    text += layer("Scale", blob, blob, "scale_param { bias_term: true }", f"{blob}_scale")
    return text + (relued(blob) if relu else "")


def relued(blob: str) -> str:
    return layer("ReLU", blob, blob, name=f"{blob}_relu")


def block(name: str, bottom: str, projected: bool) -> str:
    text = convolution(bottom, f"{name}a", 1) + normalized(f"{name}a")
    text += convolution(f"{name}a", f"{name}b") + normalized(f"{name}b", relu=False)
    if projected:
        text += convolution(bottom, f"{name}p", 1) + normalized(f"{name}p", relu=False)
    other = f"{name}p" if projected else bottom
    return text + layer("Eltwise", f"{name}b {other}", name) + relued(name)


def ending(bottom: str) -> str:
    scores = 'inner_product_param { num_output: 5 weight_filler { type: "xavier" } }'
    return layer("InnerProduct", bottom, "scores", scores) + layer("SoftmaxWithLoss", "scores label", "loss")


def average(bottom: str) -> str:
    return layer("Pooling", bottom, "average", "pooling_param { pool: AVE global_pooling: true }")


RESIDUAL = (
    convolution("x", "stem")
    + normalized("stem")
    + layer("Pooling", "stem", "pooled", "pooling_param { kernel_size: 3 stride: 1 pad: 1 }")
    + block("one", "pooled", True)
    + block("two", "one", False)
    + block("three", "two", True)
    + average("three")
    + ending("average")
)
INCEPTION = (
    convolution("x", "stem")
    + relued("stem")
    + layer("LRN", "stem", "norm", "lrn_param { local_size: 5 }")
    + convolution("norm", "left", 1)
    + relued("left")
    + convolution("norm", "right")
    + relued("right")
    + layer("Pooling", "norm", "pool", "pooling_param { pool: AVE kernel_size: 3 stride: 1 pad: 1 }")
    + convolution("pool", "third", 1)
    + layer("Concat", "left right third", "joined")
    + layer("Dropout", "joined", "joined", name="drop")
    + layer("Slice", "joined", "s1 s2", "slice_param { slice_point: 16 }")
    + layer("Dropout", "s2", "dropped")
    + average("dropped")
    + layer("Flatten", "average", "flat")
    + ending("flat")
)
CHAIN = (
    convolution("x", "a")
    + layer("Power", "a", "a", "power_param { scale: 0.5 shift: 1 }", "a_power")
    + layer("Sigmoid", "a", "b")
    + layer("Scale", "b", "c", "scale_param { bias_term: true }")
    + layer("Bias", "c", "c", name="c_bias")
    + layer("BatchNorm", "c", "d")
    + layer("Scale", "d", "d", name="d_scale")
    + relued("d")
    + layer("Eltwise", "d b", "product", "eltwise_param { operation: PROD }")
    + layer("Eltwise", "product c", "e", "eltwise_param { coeff: 2 coeff: -1 }")
    + layer("Eltwise", "e d", "f", "eltwise_param { operation: MAX }")
    + layer("PReLU", "f", "f", name="f_prelu")
    + layer("Reshape", "f", "g", "reshape_param { shape { dim: 0 dim: 10 dim: -1 dim: 8 } }")
    + layer("TanH", "g", "h")
    + layer("Split", "h", "h1 h2")
    + layer("Concat", "h1 h2", "i")
    + average("i")
    + ending("average")
)
SHARED = 'param { name: "w" } param { name: "b" }'
TIED = (
    convolution("x", "a").replace("layer {", f"layer {{ {SHARED}", 1)
    + relued("a")
    + layer("Eltwise", "a x", "s1")
    + convolution("s1", "b").replace("layer {", f"layer {{ {SHARED}", 1)
    + normalized("b", relu=False)
    + layer("Eltwise", "b s1", "s2")
    + average("s2")
    + ending("average")
)
NETS = {"residual": RESIDUAL, "inception": INCEPTION, "chain": CHAIN, "shared weights": TIED}


def build(text: str, phase: int = caffe.TRAIN, **kwargs) -> caffe.Net:
    dims = f"shape {{ dim: 2 dim: {CHANNELS} dim: {SIZE} dim: {SIZE} }} shape {{ dim: 2 }}"
    head = f'layer {{ name: "in" type: "Input" top: "x" top: "label" input_param {{ {dims} }} }}\n'
    caffe.set_random_seed(2)
    return caffe.Net(text_format.Parse(head + text, caffe_pb2.NetParameter()), phase, **kwargs)


def frugal_net(text: str, keep_diffs: bool = False) -> caffe.Net:
    net = build(text)
    net.keep_blobs, net.keep_diffs = False, keep_diffs
    return net


def feed(net: caffe.Net, seed: int) -> None:
    rng = np.random.default_rng(seed)
    net.blobs["x"].data[...] = rng.standard_normal(net.blobs["x"].shape)
    net.blobs["label"].data[...] = rng.integers(0, 5, net.blobs["label"].shape)


def learn(net: caffe.Net) -> None:
    for param in net.learnable:
        data, diff = param.blob.mutable_cpu_data(), param.blob.cpu_diff()
        data -= np.float32(0.05) * diff


def train(net: caffe.Net, steps: int = 3, passes: int = 2, first: int = 0) -> list[np.ndarray]:
    """Losses, and the parameters afterwards."""
    found = []
    for step in range(first, first + steps):
        net.clear_param_diffs()
        for k in range(passes):
            feed(net, 10 * step + k)
            found.append(np.float32(net.run_forward()))
            net.run_backward()
        learn(net)
    return found + [p.blob.cpu_data().copy() for p in net.learnable]


def same(ours: list[np.ndarray], theirs: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.fixture
def thorough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that can be given up is, however small."""
    monkeypatch.setattr(net_memory, "SMALL", 0)


@pytest.fixture
def poisoned(thorough: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given up becomes nan at once, padding included."""
    give_up, give = SyncedMem.give_up, Pool.give

    def spoiling(mem: SyncedMem, lost: Callable[[], None]) -> None:
        if mem.pool is not None and mem.exporter() is None:
            for (place, layout), buffer in mem._copies.items():
                place.from_host(np.full(mem.size, np.nan, np.float32), layout, buffer)
            if mem.host is not None:
                mem.host[...] = np.nan
        give_up(mem, lost)

    def spoiled(pool: Pool, place, buffer) -> None:
        if hasattr(buffer, "floats"):
            buffer.floats[...] = np.nan
        give(pool, place, buffer)

    monkeypatch.setattr(SyncedMem, "give_up", spoiling)
    monkeypatch.setattr(Pool, "give", spoiled)


@pytest.mark.parametrize("keep_diffs", [True, False])
@pytest.mark.parametrize("name", NETS)
def test_the_same_bits(engine: str, name: str, keep_diffs: bool, thorough: None) -> None:
    plain, frugal = build(NETS[name]), frugal_net(NETS[name], keep_diffs)
    assert same(train(frugal), train(plain))
    for net in (frugal, plain):
        net.run_forward()
    assert held(frugal, "data") < held(plain, "data")
    frugal.keep_blobs = frugal.keep_diffs = True
    assert same(train(frugal, first=3), train(plain, first=3))
    for blob, other in zip(frugal.blobs.values(), plain.blobs.values(), strict=True):
        assert np.array_equal(blob.data, other.data)


@pytest.mark.parametrize("name", NETS)
def test_nobody_reads_what_was_given_up(engine: str, name: str, poisoned: None) -> None:
    plain, frugal = build(NETS[name]), frugal_net(NETS[name])
    assert same(train(frugal, 4), train(plain, 4))


def test_who_looks_is_told(engine: str, thorough: None) -> None:
    net = frugal_net(RESIDUAL)
    train(net, 1)
    words = r"the memory of blob 'twob' is used by other layers.*keep_blobs = True"
    with pytest.raises(NetError, match=words):
        _ = net.blobs["twob"].data
    for name in ("x", "label", "loss", "twoa", "two", "three"):  # inputs, outputs, what backward reads
        assert np.isfinite(net.blobs[name].data).all()


def test_a_view_keeps_its_blob(engine: str, thorough: None) -> None:
    plain, frugal = build(RESIDUAL), frugal_net(RESIDUAL)
    view = frugal.blobs["twob"].data
    assert same(train(frugal), train(plain))
    assert np.array_equal(view, plain.blobs["twob"].data)


def test_backward_twice(engine: str, poisoned: None) -> None:
    plain, frugal = build(RESIDUAL), frugal_net(RESIDUAL)
    for net in (plain, frugal):
        feed(net, 1)
        net.clear_param_diffs()
        net.run_forward()
        net.run_backward()
        net.run_backward()
    for ours, theirs in zip(frugal.learnable, plain.learnable, strict=True):
        assert np.array_equal(ours.blob.diff, theirs.blob.diff)


def test_parts_of_passes_mixed_with_whole_ones(engine: str, poisoned: None) -> None:
    plain, frugal = build(RESIDUAL), frugal_net(RESIDUAL)
    last, middle = len(plain.layers) - 1, len(plain.layers) // 2
    for k in range(4):
        for net in (plain, frugal):
            feed(net, k)
            net.clear_param_diffs()
            if k % 2:
                net.run_forward(0, middle)
                net.run_forward(middle + 1, last)
            else:
                net.run_forward()
            if k < 2:
                net.run_backward(last, middle + 1)
                net.run_backward(middle, 0)
            else:
                net.run_backward()
            learn(net)
        assert same([p.blob.data for p in frugal.learnable], [p.blob.data for p in plain.learnable])


def test_callbacks_see_all_blobs(engine: str, poisoned: None) -> None:
    net = frugal_net(RESIDUAL)
    train(net, 1)
    seen = []
    net.after_forward(lambda i: seen.extend(np.isfinite(b.data).all() for b in net._steps[i].top))
    train(net, 1)
    assert len(seen) > 20 and all(seen)


def test_other_batches_and_other_kernels(engine: str, poisoned: None) -> None:
    plain, frugal = build(RESIDUAL), frugal_net(RESIDUAL)
    for n in (2, 5, 1):
        for net in (plain, frugal):
            net.blobs["x"].reshape(n, CHANNELS, SIZE, SIZE)
            net.blobs["label"].reshape(n)
        assert same(train(frugal, 2), train(plain, 2))


def test_a_step_with_another_kernel_gives_nothing_up(engine: str, thorough: None) -> None:
    """Its layer may be of those that read what the kernel before did not."""
    net = frugal_net(RESIDUAL)
    train(net, 1)
    step = next(s for s in net._steps if s.layer.name == "two")
    step.wanted = ("fake",) if engine != "fake" else ()
    step.kernel = type("Other", (type(step.kernel),), {})(step.layer, step.propagate_down)
    step.prepare(net.run)
    net.run_forward()
    assert np.isfinite(net.blobs["twob"].data).all()


def test_a_net_that_tests_runs_forward_only(engine: str) -> None:
    net = build(RESIDUAL, caffe.TEST, keep_blobs=False)
    net.run_forward()
    with pytest.raises(NetError, match="forward only"):
        net.run_backward()


def test_small_blobs_stay(engine: str) -> None:
    """So that the layers before a loss are repeated as one."""
    net = frugal_net(RESIDUAL)
    train(net, 1)
    assert np.isfinite(net.blobs["twob"].data).all()


SEQUENCE = (
    layer("Eltwise", "x y", "sum")
    + layer("LSTM", "sum cont", "l", 'recurrent_param { num_output: 4 weight_filler { type: "xavier" } }')
    + layer("RNN", "l cont", "r", 'recurrent_param { num_output: 4 weight_filler { type: "xavier" } }')
    + layer("Eltwise", "l r", "total")
    + layer("Reduction", "total", "loss", "loss_weight: 1 reduction_param { operation: SUMSQ }")
)


def test_layers_that_hold_nets(engine: str, poisoned: None, rng: np.random.Generator) -> None:
    shapes = "shape { dim: 5 dim: 2 dim: 4 } shape { dim: 5 dim: 2 dim: 4 } shape { dim: 5 dim: 2 }"
    tops = 'top: "x" top: "y" top: "cont"'
    head = f'layer {{ name: "in" type: "Input" {tops} input_param {{ {shapes} }} }}\n'
    nets = []
    for keep in (True, False):
        caffe.set_random_seed(2)
        net = caffe.Net(text_format.Parse(head + SEQUENCE, caffe_pb2.NetParameter()), caffe.TRAIN)
        net.keep_blobs = net.keep_diffs = keep
        nets.append(net)
    for _ in range(3):
        x, y = rng.standard_normal((2, 5, 2, 4))
        cont = rng.integers(0, 2, (5, 2))
        for net in nets:
            net.blobs["x"].data[...], net.blobs["y"].data[...], net.blobs["cont"].data[...] = x, y, cont
            net.clear_param_diffs()
            net.run_forward()
            net.run_backward()
            learn(net)
        assert same(*([p.blob.data for p in net.learnable] for net in nets))


def test_where_a_nan_came_from(engine: str, thorough: None) -> None:
    net = frugal_net(RESIDUAL)
    feed(net, 0)
    net.params["twob_scale"][0].data[3] = np.inf
    net.params["twob_scale"][1].data[3] = np.nan
    net.run_forward()
    assert "layer 'twob_scale' (Scale), parameter 0: inf" in debug_info.first_nonfinite(net)
    net.params["twob_scale"][0].data[3] = 3e38
    net.params["twob_scale"][1].data[3] = 3e38
    net.run_forward()
    found = debug_info.first_nonfinite(net)
    assert found.startswith("layer 'two' (Eltwise), top blob 'two'")
    assert "Not looked at, since given up before" in found and "'twob'" in found


RECIPE = """
base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 max_iter: 3 snapshot_after_train: false random_seed: 4
"""


def test_one_copy_of_each_weight_after_a_step(thorough: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAFFE_ENGINE", "onednn")
    if not caffe.kernels.engine_ready("onednn"):
        pytest.skip(caffe.kernels.engine_reason("onednn"))
    nets = []
    for keep in (True, False):
        param = text_format.Parse(RECIPE, caffe_pb2.SolverParameter())
        param.net_param.CopyFrom(build(RESIDUAL).param)
        solver = caffe.get_solver(param)
        net = solver.net
        net.keep_blobs = net.keep_diffs = keep
        feed(net, 0)
        solver.step(3)
        nets.append(net)
    kept, frugal = nets
    assert max(len(p.blob.data_mem._copies) for p in kept.learnable) > 1
    assert max(len(p.blob.data_mem._copies) for p in frugal.learnable) == 1
    assert same(*([p.blob.data for p in net.learnable] for net in nets))


def test_caffe_train_gives_up_blobs(tmp_path: Path, thorough: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from caffe_tools import train as command
    from caffe_tools.flags import Flags

    for debug in (False, True):
        param = text_format.Parse(RECIPE, caffe_pb2.SolverParameter(debug_info=debug))
        param.net_param.CopyFrom(build(RESIDUAL).param)
        with command._solver(param, Flags()) as solver:
            assert solver.net.keep_blobs is debug and solver.net.keep_diffs is False
