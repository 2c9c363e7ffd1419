"""Batches that are sent to the device ahead of their pass: the same, in the same order, and no loose ends."""

from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
import test_data_resume
from caffe.proto import caffe_pb2
from conftest import use_gpu
from engines.cuda import support

NET = """
layer { name: "d" type: "Data" top: "data" top: "label" transform_param { scale: 0.01 }
        data_param { source: "dataset://digits/train" backend: LMDB batch_size: 3 prefetch: 3 } }
layer { name: "y" type: "Power" bottom: "data" top: "y" power_param { scale: 2 } }
"""


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    use_gpu()
    monkeypatch.setenv("CAFFE_ENGINE", "cuda")


def build(text: str = NET) -> caffe.Net:
    return caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), caffe.TRAIN)


def wait_for_the_reader(net: caffe.Net) -> None:
    """Until the next two batches are ready. On the CPU, such small images are not read ahead."""
    if not net.layers[0]._reader.threads:
        return
    for _ in range(1000):
        if len(net.layers[0]._reader._shared._ready) > 1:
            return
        time.sleep(0.01)
    raise AssertionError("the reader makes no batch")


def passes(net: caffe.Net, count: int) -> list[np.ndarray]:
    """y and the labels of some passes. After each the reader has had its time, so that the next one finds two
    batches and sends the second ahead."""
    found = []
    for _ in range(count):
        net.forward()
        found += [net.blobs[name].data.copy() for name in ("y", "label")]
        wait_for_the_reader(net)
    return found


def kernel_of(net: caffe.Net) -> Any:
    return net._steps[0].kernel


def test_batches_are_those_of_the_cpu_and_are_sent_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    net = build()
    here = passes(net, 1)
    for _ in range(6):
        here += passes(net, 1)
        ahead = kernel_of(net)._batch
        assert ahead is not None and ahead is net.layers[0].peek()
    monkeypatch.setenv("CAFFE_ENGINE", "reference")
    for a, b in zip(here, passes(build(), 7), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_one_copy_for_each_batch_and_top() -> None:
    from caffe.engines.cuda.place import PLACE

    net = build()
    for _ in range(2):
        net.run_forward()
        wait_for_the_reader(net)
    before = PLACE.counts.copy()
    for _ in range(4):
        net.run_forward()
        wait_for_the_reader(net)
    copies = PLACE.counts - before
    assert copies["to_device"] == 2 * 4 and copies["to_device_bytes"] == 4 * 4 * 3 * (8 * 8 + 1)
    assert "to_host" not in copies


def test_a_batch_is_the_layers_until_its_copy_is_done() -> None:
    """The emulated driver copies when somebody waits: memory that is given back too early is changed then."""
    support.emulated()
    net = build()
    first = passes(net, 1)
    layer, changed = net.layers[0], []
    give_back = layer.give_back

    def spoil(batch: Any) -> None:
        batch.data[...] = np.nan
        changed.append(batch)
        give_back(batch)

    layer.give_back = spoil
    after = passes(net, 4)
    assert len(changed) == 4
    assert np.isfinite(np.concatenate([a.ravel() for a in (*first, *after)])).all()


def test_another_place_in_the_data() -> None:
    net = build()
    first = passes(net, 3)
    assert kernel_of(net)._batch is net.layers[0].peek() is not None
    net.layers[0].seek(0)
    for a, b in zip(first, passes(net, 3), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_view_that_is_held_sees_each_batch() -> None:
    net = build()
    net.forward()
    view = net.blobs["data"].data
    for _ in range(3):
        wait_for_the_reader(net)
        net.forward()
        np.testing.assert_allclose(net.blobs["y"].data, 2 * view, rtol=1e-6)


def test_a_net_that_is_dropped_leaves_nothing() -> None:
    driver = support.emulated()
    from caffe.engines.cuda.place import ctypes

    driver.emulated_memory_used.restype = ctypes.c_size_t
    driver.emulated_complaint.restype = ctypes.c_char_p
    gc.collect()
    before, complaint = driver.emulated_memory_used(), driver.emulated_complaint()
    net = build()
    passes(net, 3)
    net.forward()
    assert kernel_of(net)._batch is not None
    del net
    gc.collect()
    assert driver.emulated_memory_used() == before
    assert driver.emulated_complaint() == complaint


def test_a_net_of_another_thread_is_dropped_in_this_one() -> None:
    code = f"""
import gc, threading, time, caffe
from google.protobuf import text_format
nets = []
def work():
    caffe.set_mode_gpu()
    net = caffe.Net(text_format.Parse('''{NET}''', caffe.proto.caffe_pb2.NetParameter()), caffe.TRAIN)
    net.forward()
    while net.layers[0].peek() is None: time.sleep(0.01)
    net.forward()
    nets.append(net)
for _ in range(2):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    nets.clear()
    gc.collect()
"""
    done = support.run_python(code)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("last", ["", "raise ValueError('mine')"])
def test_a_process_that_ends_meanwhile(last: str) -> None:
    code = f"""
import time, caffe
from google.protobuf import text_format
caffe.set_mode_gpu()
net = caffe.Net(text_format.Parse('''{NET}''', caffe.proto.caffe_pb2.NetParameter()), caffe.TRAIN)
net.forward()
while net.layers[0].peek() is None: time.sleep(0.01)
net.forward()
{last}
"""
    done = support.run_python(code)
    if last:
        assert done.returncode == 1 and done.stderr.endswith("ValueError: mine\n")
        assert "ignored" not in done.stderr and "PyCUDA" not in done.stderr
    else:
        assert (done.returncode, done.stderr) == (0, "")


data = test_data_resume.data


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("layer", ["Data", "ImageData", "WindowData"])
def test_a_resumed_training_ends_in_the_same_bits(layer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    test_data_resume.test_a_resumed_training_ends_in_the_same_bits(layer)
    here = test_data_resume.train(layer, "here")
    monkeypatch.setenv("CAFFE_ENGINE", "reference")
    np.testing.assert_allclose(here, test_data_resume.train(layer, "there"), rtol=1e-4, atol=1e-6)
