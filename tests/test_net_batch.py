"""forward_all, forward_backward_all and set_input_arrays: any number of items in batches."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe.errors import NetError
from caffe.proto import caffe_pb2

CLASSIFIER = """
force_backward: true
layer { name: "in" type: "Input" top: "x" top: "t" input_param { shape { dim: 3 dim: 4 } shape { dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
        inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "t" top: "loss" }
"""
MEMORY = """
layer { name: "in" type: "MemoryData" top: "x" top: "t"
        memory_data_param { batch_size: 2 channels: 1 height: 2 width: 2 } }
layer { name: "twice" type: "Power" bottom: "x" top: "twice" power_param { scale: 2 } }
"""


def net_of(text: str) -> caffe.Net:
    return caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), caffe.TEST)


def softmax(scores: np.ndarray) -> np.ndarray:
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_forward_all_gives_each_item_what_it_gives_alone(
    count: int, engine: str, rng: np.random.Generator
) -> None:
    net = net_of(CLASSIFIER)
    x, t = rng.standard_normal((count, 4)), rng.integers(0, 2, count)
    weights, bias = (blob.data.astype(float) for blob in net.params["ip"])
    results = net.forward_all(["ip"], x=x, t=t)
    assert sorted(results) == ["ip", "loss", "prob"]
    np.testing.assert_allclose(results["ip"], x @ weights.T + bias, atol=1e-5)
    np.testing.assert_allclose(results["prob"], softmax(x @ weights.T + bias), atol=1e-5)
    # The loss is one number for each batch of three, the last filled up with zeros.
    assert results["loss"].shape == (-(-count // 3),)
    padded = np.zeros((3 * len(results["loss"]), 4))
    padded[:count] = x
    labels = np.zeros(len(padded), int)
    labels[:count] = t
    losses = -np.log(softmax(padded @ weights.T + bias)[np.arange(len(padded)), labels])
    np.testing.assert_allclose(results["loss"], losses.reshape(-1, 3).mean(axis=1), atol=1e-5)


def test_results_are_arrays_of_ones_own(rng: np.random.Generator) -> None:
    net = net_of(CLASSIFIER)
    x, t = rng.standard_normal((3, 4)), np.zeros(3)
    first = net.forward_all(x=x, t=t)["prob"]
    kept = first.copy()
    net.forward_all(x=-x, t=t)
    np.testing.assert_array_equal(first, kept)


def test_forward_backward_all(engine: str, rng: np.random.Generator) -> None:
    text = CLASSIFIER.replace('top: "t"', "").replace("shape { dim: 3 } ", "").rsplit("layer", 1)[0]
    net = net_of(text)
    x, gradient = rng.standard_normal((5, 4)), rng.standard_normal((5, 2))
    weights, bias = (blob.data.astype(float) for blob in net.params["ip"])
    outputs, diffs = net.forward_backward_all(["ip"], ["ip"], x=x, prob=gradient)
    prob = softmax(x @ weights.T + bias)
    wanted = prob * (gradient - (gradient * prob).sum(axis=1, keepdims=True))
    assert (sorted(outputs), sorted(diffs)) == (["ip", "prob"], ["ip", "x"])
    np.testing.assert_allclose(outputs["prob"], prob, atol=1e-5)
    np.testing.assert_allclose(diffs["ip"], wanted, atol=1e-5)
    np.testing.assert_allclose(diffs["x"], wanted @ weights, atol=1e-5)
    np.testing.assert_allclose(net.params["ip"][0].diff, wanted.T @ x, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda n: n.forward_all(x=np.zeros((2, 4))),
            "Input blob arguments do not match net inputs. Given: x",
        ),
        (lambda n: n.forward_all(), "Given: none; the net has: x, t"),
        (lambda n: n.forward_all(x=np.zeros((2, 4)), t=np.zeros(3)), "same number of items"),
        (lambda n: n.forward_all(x=np.zeros((0, 4)), t=np.zeros(0)), "1 or more"),
        (lambda n: n.forward_all(x=np.float32(1), t=np.float32(1)), "same number of items"),
        (
            lambda n: n.forward_all(x=np.zeros((2, 5)), t=np.zeros(2)),
            r"an array of shape \(3, 5\) does not fit",
        ),
        (lambda n: n.forward_all(["zzz"], x=np.zeros((2, 4)), t=np.zeros(2)), "Unknown blob 'zzz'"),
        (lambda n: n.forward_backward_all(y=np.zeros((2, 4))), "y is no input or output"),
        (
            lambda n: n.set_input_arrays(np.zeros((2, 4)), np.zeros(2)),
            "first layer is a MemoryDataLayer; it is 'in'",
        ),
    ],
)
def test_refusals(call, words: str) -> None:
    with pytest.raises(NetError, match=words):
        call(net_of(CLASSIFIER))


def test_input_arrays_are_kept_and_seen(rng: np.random.Generator) -> None:
    net = net_of(MEMORY)
    data, labels = rng.standard_normal((4, 1, 2, 2)).astype(np.float32), np.arange(4, dtype=np.float32)
    net.set_input_arrays(data, labels)
    net.forward()
    np.testing.assert_array_equal(net.blobs["twice"].data, 2 * data[:2])
    data[2:] = 5
    net.forward()
    np.testing.assert_array_equal(net.blobs["twice"].data, np.full((2, 1, 2, 2), 10))
    np.testing.assert_array_equal(net.blobs["t"].data.ravel(), labels[2:])


def test_inputs_may_be_called_start_and_end() -> None:
    """Which are also the names of forward's own arguments."""
    net = net_of(
        """
        layer { name: "in" type: "Input" top: "start" top: "end" input_param { shape { dim: 2 dim: 1 } } }
        layer { name: "sum" type: "Eltwise" bottom: "start" bottom: "end" top: "sum" }
        """
    )
    items = np.arange(3.0).reshape(3, 1)
    np.testing.assert_allclose(net.forward_all(start=items, end=10 * items)["sum"], 11 * items)
