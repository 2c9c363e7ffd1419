"""Nets that keep no blobs, training without gradients of blobs: right numbers or an error, less memory."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe.errors import NetError
from caffe.proto import caffe_pb2

INPUT = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 16 dim: 8 dim: 8 } } }
"""
BLOCK = """
layer {{ name: "c{0}" type: "Convolution" bottom: "{1}" top: "c{0}"
        convolution_param {{ num_output: 16 kernel_size: 3 pad: 1 weight_filler {{ type: "msra" }} }} }}
layer {{ name: "r{0}" type: "ReLU" bottom: "c{0}" top: "c{0}" }}
"""
SUM = """
layer { name: "sum" type: "Eltwise" bottom: "c2" bottom: "c5" top: "sum" }
layer { name: "rs" type: "ReLU" bottom: "sum" top: "sum" }
"""
LOSS = """
layer { name: "loss" type: "Reduction" bottom: "sum" top: "loss" loss_weight: 1
        reduction_param { operation: SUMSQ } }
"""
DEEP = INPUT + "".join(BLOCK.format(i, f"c{i - 1}" if i else "x") for i in range(6)) + SUM


def net_of(text: str, phase: int, **kwargs) -> caffe.Net:
    caffe.set_random_seed(2)
    return caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), phase, **kwargs)


def held(net: caffe.Net, which: str) -> int:
    """Bytes that the memory of the net's blobs takes, each buffer once."""
    found = {}
    for blob in net._wiring.blobs:
        mem = blob.data_mem if which == "data" else blob.diff_mem
        if mem.host is not None:
            found[mem.host.ctypes.data] = mem.host.nbytes
        for (place, _), buffer in mem._copies.items():
            found[id(buffer)] = place.capacity(buffer) if hasattr(place, "capacity") else buffer.cells.nbytes
    return sum(found.values())


def test_a_net_without_blobs(engine: str, rng: np.random.Generator) -> None:
    plain, frugal = net_of(DEEP, caffe.TEST), net_of(DEEP, caffe.TEST, keep_blobs=False)
    for _ in range(3):
        x = rng.standard_normal((2, 16, 8, 8))
        for net in (plain, frugal):
            net.blobs["x"].data[...] = x
        assert np.allclose(frugal.forward()["sum"], plain.forward()["sum"], atol=1e-6)
    assert held(frugal, "data") < held(plain, "data")
    with pytest.raises(NetError, match=r"the memory of blob 'c1' is used by other layers.*keep_blobs=False"):
        _ = frugal.blobs["c1"].data
    with pytest.raises(NetError, match="runs forward only"):
        frugal.backward()


def test_a_view_that_is_held_keeps_its_blob(engine: str, rng: np.random.Generator) -> None:
    plain, frugal = net_of(DEEP, caffe.TEST), net_of(DEEP, caffe.TEST, keep_blobs=False)
    view = frugal.blobs["c1"].data
    for _ in range(2):
        x = rng.standard_normal((2, 16, 8, 8))
        for net in (plain, frugal):
            net.blobs["x"].data[...] = x
            net.run_forward()
        assert np.allclose(view, plain.blobs["c1"].data, atol=1e-6)


def test_a_frugal_net_takes_other_batches(engine: str, rng: np.random.Generator) -> None:
    plain, frugal = net_of(DEEP, caffe.TEST), net_of(DEEP, caffe.TEST, keep_blobs=False)
    for n in (1, 4, 2):
        x = rng.standard_normal((n, 16, 8, 8))
        for net in (plain, frugal):
            net.blobs["x"].reshape(*x.shape)
            net.blobs["x"].data[...] = x
            net.run_forward()
        assert np.allclose(frugal.blobs["sum"].data, plain.blobs["sum"].data, atol=1e-6)


def test_training_without_the_gradients_of_blobs(engine: str, rng: np.random.Generator) -> None:
    plain, frugal = net_of(DEEP + LOSS, caffe.TRAIN), net_of(DEEP + LOSS, caffe.TRAIN)
    frugal.keep_diffs = False
    for _ in range(2):
        x = rng.standard_normal((2, 16, 8, 8))
        for net in (plain, frugal):
            net.blobs["x"].data[...] = x
            net.clear_param_diffs()
            net.run_forward()
            net.run_backward()
        gc.collect()
        for ours, theirs in zip(frugal.learnable, plain.learnable, strict=True):
            assert np.allclose(ours.blob.diff, theirs.blob.diff, atol=1e-3, rtol=1e-4)
    assert held(frugal, "diff") < held(plain, "diff")
    with pytest.raises(NetError, match="the gradient of blob 'c3' was given up"):
        _ = frugal.blobs["c3"].diff
    frugal.keep_diffs = True
    for net in (plain, frugal):
        net.run_forward()
        net.run_backward()
    assert np.allclose(frugal.blobs["c3"].diff, plain.blobs["c3"].diff, atol=1e-4)


BRANCH = """
layer { name: "in" type: "Input" top: "x" top: "label"
        input_param { shape { dim: 4 dim: 6 } shape { dim: 4 } } }
layer { name: "f" type: "InnerProduct" bottom: "x" top: "f"
        inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "f" bottom: "label" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "f" bottom: "label" top: "accuracy" }
"""


@pytest.mark.parametrize("phase", [caffe.TRAIN, caffe.TEST])
def test_gradients_of_a_branch_without_a_loss_stay_zero(
    engine: str, rng: np.random.Generator, phase: int
) -> None:
    plain, frugal = net_of(BRANCH, phase), net_of(BRANCH, phase)
    frugal.keep_diffs = False
    for _ in range(3):
        x = rng.standard_normal((4, 6))
        for net in (plain, frugal):
            net.blobs["x"].data[...] = x
            net.clear_param_diffs()
            net.run_forward()
            net.run_backward()
        assert np.array_equal(frugal.params["f"][0].diff, plain.params["f"][0].diff)
    frugal.keep_diffs = True
    frugal.run_forward()
    frugal.run_backward()
    assert np.array_equal(frugal.blobs["f"].diff, plain.blobs["f"].diff)


def test_memory_is_kept_again_when_asked(engine: str, rng: np.random.Generator) -> None:
    plain, frugal = net_of(DEEP, caffe.TEST), net_of(DEEP, caffe.TEST)
    for keep in (False, True, False, True):
        frugal.keep_blobs = keep
        x = rng.standard_normal((2, 16, 8, 8))
        for net in (plain, frugal):
            net.blobs["x"].data[...] = x
            net.run_forward()
            net.run_forward()
        if keep:
            assert np.allclose(frugal.blobs["c1"].data, plain.blobs["c1"].data, atol=1e-6)
        assert np.allclose(frugal.blobs["sum"].data, plain.blobs["sum"].data, atol=1e-6)


HALF = '''
import caffe


class Half(caffe.Layer):
    """Writes every other column only: the others stay what they are."""

    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[:, ::2] = bottom[0].data[:, ::2]

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[:, ::2] = top[0].diff[:, ::2]
'''
OF_A_USER = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 4 dim: 6 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a"
        inner_product_param { num_output: 6 weight_filler { type: "xavier" } } }
layer { name: "half" type: "Python" bottom: "a" top: "half" python_param { module: "half_of" layer: "Half" } }
layer { name: "b" type: "InnerProduct" bottom: "half" top: "b"
        inner_product_param { num_output: 6 weight_filler { type: "xavier" } } }
layer { name: "sum" type: "Reduction" bottom: "b" top: "sum" loss_weight: 1
        reduction_param { operation: SUMSQ } }
"""


def test_layers_of_users_find_their_arrays_as_they_left_them(
    engine: str, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_of.py").write_text(HALF)
    monkeypatch.syspath_prepend(str(tmp_path))
    plain, frugal = net_of(OF_A_USER, caffe.TRAIN), net_of(OF_A_USER, caffe.TRAIN)
    forward_only = net_of(OF_A_USER, caffe.TEST, keep_blobs=False)
    frugal.keep_diffs = False
    for _ in range(3):
        x = rng.standard_normal((4, 6))
        for net in (plain, frugal, forward_only):
            net.blobs["x"].data[...] = x
            net.clear_param_diffs()
            net.run_forward()
        for net in (plain, frugal):
            net.run_backward()
        assert np.allclose(forward_only.blobs["sum"].data, plain.blobs["sum"].data, rtol=1e-5)
        for ours, theirs in zip(frugal.learnable, plain.learnable, strict=True):
            assert np.array_equal(ours.blob.diff, theirs.blob.diff)
