"""Passes that are repeated without asking each blob: the same numbers as step by step, whatever users do in
between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

import caffe
from caffe import kernels
from caffe.proto import caffe_pb2

NET = """
force_backward: true
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
layer { name: "a" type: "Convolution" bottom: "x" top: "a"
        convolution_param { num_output: 18 kernel_size: 3 pad: 1 weight_filler { type: "msra" }
                            bias_filler { type: "uniform" } } }
layer { name: "ra" type: "ReLU" bottom: "a" top: "a" }
layer { name: "b" type: "Convolution" bottom: "a" top: "b"
        convolution_param { num_output: 18 kernel_size: 3 pad: 1 bias_term: false
                            weight_filler { type: "msra" } } }
layer { name: "nb" type: "BatchNorm" bottom: "b" top: "b" }
layer { name: "sb" type: "Scale" bottom: "b" top: "b"
        scale_param { bias_term: true filler { type: "uniform" min: 0.5 } } }
layer { name: "s" type: "Eltwise" bottom: "a" bottom: "b" top: "s" }
layer { name: "rs" type: "ReLU" bottom: "s" top: "s" }
layer { name: "p" type: "Pooling" bottom: "s" top: "p" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "c" type: "Concat" bottom: "p" bottom: "p" top: "c" }
layer { name: "f" type: "Flatten" bottom: "c" top: "f" }
layer { name: "i" type: "InnerProduct" bottom: "f" top: "i"
        inner_product_param { num_output: 12 weight_filler { type: "msra" } } }
layer { name: "d" type: "Dropout" bottom: "i" top: "i" }
layer { name: "t" type: "TanH" bottom: "i" top: "t" }
layer { name: "o" type: "InnerProduct" bottom: "t" top: "o"
        inner_product_param { num_output: 5 weight_filler { type: "msra" } } }
layer { name: "prob" type: "Softmax" bottom: "o" top: "prob" }
"""
READABLE = ("a", "b", "s", "p", "c", "f", "i", "t", "o", "prob")


def build(engine: str, **kwargs: Any) -> caffe.Net:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAFFE_ENGINE", engine)
        caffe.set_random_seed(3)
        net = caffe.Net(text_format.Parse(NET, caffe_pb2.NetParameter()), caffe.TEST, **kwargs)
    net.params["nb"][1].data[...] = 2
    net.params["nb"][2].data[...] = 1
    return net


@pytest.fixture(autouse=True)
def _engine() -> Iterator[None]:
    if not kernels.engine_ready("onednn"):
        pytest.skip(kernels.engine_reason("onednn"))
    yield


def repeats(net: caffe.Net, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many passes of three ask no kernel to run."""
    from caffe.engines.onednn.convolution import ConvolutionKernel
    from caffe.engines.onednn.neuron import TanHKernel

    asked = []
    before = TanHKernel.forward
    monkeypatch.setattr(TanHKernel, "forward", lambda *args: (asked.append(1), before(*args))[1])
    assert ConvolutionKernel.repeatable
    for _ in range(3):
        net.blobs["x"].data[...] += 1
        net.run_forward()
    monkeypatch.undo()
    return 3 - len(asked)


def test_passes_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    net = build("onednn")
    net.forward()
    assert repeats(net, monkeypatch) == 3
    assert repeats(build("onednn", keep_blobs=False), monkeypatch) == 2


@pytest.mark.parametrize("name", ["a", "p", "t", "o"])
def test_reading_a_blob_each_time_ends_no_repetition(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, plain = build("onednn"), build("reference")
    for step in range(6):
        for each in (net, plain):
            each.blobs["x"].data[...] = np.random.default_rng(step).standard_normal((2, 3, 8, 8))
            each.run_forward()
        assert np.allclose(net.blobs[name].data, plain.blobs[name].data, atol=1e-5)
    assert repeats(net, monkeypatch) >= 2


def test_a_parameter_that_changes_is_seen() -> None:
    net, plain = build("onednn"), build("reference")
    for key, index in (("a", 0), ("a", 1), ("b", 0), ("nb", 0), ("sb", 1), ("o", 0)):
        for each in (net, plain):
            for _ in range(3):
                each.run_forward()
            each.params[key][index].data[...] *= 1.5
        assert np.allclose(net.forward()["prob"], plain.forward()["prob"], atol=1e-6), (key, index)


def test_a_pass_that_fails_leaves_nothing_behind() -> None:
    net, plain = build("onednn"), build("reference")
    for each in (net, plain):
        for _ in range(3):
            each.run_forward()
        each.blobs["x"].reshape(2, 4, 8, 8)  # the filters have 3 channels
        with pytest.raises(caffe.CaffeError):
            each.run_forward()
        each.blobs["x"].reshape(2, 3, 8, 8)
        each.blobs["x"].data[...] = 0.5
    for _ in range(3):
        assert np.allclose(net.forward()["prob"], plain.forward()["prob"], atol=1e-6)


class Pair:
    """Two nets that are treated alike; operations by number."""

    def __init__(self, **kwargs: Any):
        self.nets = (build("onednn", **kwargs), build("reference", **kwargs))
        self.held: list[Any] = []
        self.others = (build("onednn"), build("reference"))
        for net in self.others:
            net.params["a"][0].data[...] *= -1

    def each(self, function: Callable[[caffe.Net], Any]) -> None:
        for net in self.nets:
            function(net)

    def same(self, name: str) -> None:
        fast, slow = (net.blobs[name].data for net in self.nets)
        assert np.allclose(fast, slow, rtol=1e-4, atol=1e-5), name


def feed(pair: Pair, k: int) -> None:
    shape = pair.nets[0].blobs["x"].shape
    values = np.random.default_rng(k).standard_normal(shape)
    pair.each(lambda net: net.blobs["x"].data.__setitem__(..., values))


def forward(pair: Pair, k: int) -> None:
    pair.each(lambda net: net.run_forward())
    if k % 2:
        pair.same("prob")


def read(pair: Pair, k: int) -> None:
    pair.each(lambda net: net.run_forward())
    pair.same(READABLE[k % len(READABLE)])


def peek(pair: Pair, k: int) -> None:
    pair.each(lambda net: net.run_forward())
    name = READABLE[k % len(READABLE)]
    fast, slow = (net.blobs[name].cpu_data() for net in pair.nets)
    assert np.allclose(fast, slow, rtol=1e-4, atol=1e-5), name


def hold(pair: Pair, k: int) -> None:
    name = READABLE[k % len(READABLE)]
    pair.held.append([net.blobs[name].data for net in pair.nets])


def look_at_held(pair: Pair, k: int) -> None:
    pair.each(lambda net: net.run_forward())
    for fast, slow in pair.held:
        assert np.allclose(fast, slow, rtol=1e-4, atol=1e-5)


def let_go(pair: Pair, k: int) -> None:
    pair.held.clear()


def hold_parameter(pair: Pair, k: int) -> None:
    key = ("a", "b", "sb", "o")[k % 4]
    pair.held.append([net.params[key][0].data for net in pair.nets])


def write_held(pair: Pair, k: int) -> None:
    if pair.held:
        for array in pair.held[k % len(pair.held)]:
            array *= 1.25


def change_parameter(pair: Pair, k: int) -> None:
    key = ("a", "b", "nb", "sb", "i", "o")[k % 6]
    pair.each(lambda net: net.params[key][0].data.__imul__(0.5))


def batch(pair: Pair, k: int) -> None:
    pair.each(lambda net: net.blobs["x"].reshape(1 + k % 3, 3, 8, 8))
    feed(pair, k)


def part(pair: Pair, k: int) -> None:
    start = ("b", "p", "i", "t")[k % 4]
    pair.each(lambda net: net.run_forward())
    pair.each(lambda net: net.forward(start=start))


def write_inside(pair: Pair, k: int) -> None:
    """DeepDream's and net surgery's way: a value from outside, then the rest of the net."""
    pair.each(lambda net: net.run_forward())
    pair.each(lambda net: net.blobs["p"].data.__setitem__(..., 0.25 * (k % 5)))
    pair.each(lambda net: net.forward(start="c"))
    pair.same("prob")


def share(pair: Pair, k: int) -> None:
    for net, other in zip(pair.nets, pair.others, strict=True):
        net.share_with(other)


def back(pair: Pair, k: int) -> None:
    pair.each(lambda net: net.run_forward())
    pair.each(lambda net: net.blobs["prob"].diff.__setitem__(..., np.arange(5) + k % 3))
    pair.each(lambda net: net.clear_param_diffs())
    pair.each(lambda net: net.run_backward())
    fast, slow = (net.blobs["x"].diff for net in pair.nets)
    assert np.allclose(fast, slow, rtol=1e-3, atol=1e-5)


OPERATIONS = [
    *[feed, forward, forward, forward],
    *[read, peek, hold, look_at_held, let_go, hold_parameter, write_held, change_parameter],
    *[batch, part, write_inside, share, back],
]


@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 20)), min_size=4, max_size=14))
@settings(max_examples=40)
def test_whatever_users_do_in_between(operations: list[tuple[Callable[[Pair, int], None], int]]) -> None:
    pair = Pair()
    for operation, k in operations:
        operation(pair, k)
    forward(pair, 1)
    forward(pair, 1)
    for name in READABLE:
        pair.same(name)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([feed, forward, forward, change_parameter, batch, share]), st.integers(0, 20)
        ),
        min_size=3,
        max_size=10,
    )
)
@settings(max_examples=20)
def test_nets_that_keep_no_blobs(operations: list[tuple[Callable[[Pair, int], None], int]]) -> None:
    pair = Pair(keep_blobs=False)
    for operation, k in operations:
        operation(pair, k)
        forward(pair, 1)
