"""Every reference model runs forward and backward and takes two training iterations, at its real size."""

from __future__ import annotations

import numpy as np
import pytest

import caffe
from caffe import models
from caffe.upgrade_proto import read_net_upgraded, read_solver_upgraded
from model_shapes import data_shapes

pytestmark = pytest.mark.full

NAMES = models.list()
# Values below which the labels of a model lie; 1,000 for the others.
CLASSES = {
    "bvlc_reference_rcnn_ilsvrc13": 201,
    "finetune_flickr_style": 20,
    "mnist_siamese": 2,
    "fcn8s": 21,
    "char_rnn": 128,
    "logistic_regression": 2,
    "digits": 10,
    "lenet": 10,
    **{name: 10 for name in NAMES if "cifar" in name},
}


def solver_of(name: str) -> caffe.Solver:
    """The model's solver for two iterations, with inputs in place of its data."""
    param = read_solver_upgraded(models.path(name, "solver.prototxt"))
    shapes = data_shapes(name, 2)
    param.net_param.CopyFrom(models.without_data(read_net_upgraded(param.net), shapes))
    for field in ("net", "test_iter", "test_interval", "test_state", "snapshot", "iter_size"):
        param.ClearField(field)
    param.snapshot_after_train = False
    param.max_iter = 2
    param.random_seed = 1
    solver = caffe.get_solver(param)
    fill(solver.net, name, list(shapes))
    return solver


def fill(net: caffe.Net, name: str, tops: list[str]) -> None:
    rng = np.random.default_rng(1)
    labels = CLASSES.get(name, 1000)
    for top in tops:
        if top not in net.blobs:  # labels of a model without
            continue
        blob = net.blobs[top]
        if top in ("label", "target", "sim") or name == "char_rnn":
            blob.data[...] = rng.integers(0, 2 if top == "cont" else labels, blob.shape)
        elif "mnist" in name or name in ("digits", "lenet"):
            blob.data[...] = rng.uniform(0, 1, blob.shape)
        else:
            blob.data[...] = rng.normal(0, 1 if name == "logistic_regression" else 50, blob.shape)


@pytest.mark.parametrize("name", NAMES)
def test_two_iterations(name: str) -> None:
    solver = solver_of(name)
    net = solver.net
    if name == "fcn8s":  # as its readme says: without them, no gradient comes back
        for layer, factor in (("upscore2", 2), ("upscore_pool4", 2), ("upscore8", 8)):
            line = 1 - abs(np.arange(2 * factor) + 0.5 - factor) / factor
            net.params[layer][0].data[range(21), range(21)] = np.outer(line, line)
    before = {layer: blobs[0].data.copy() for layer, blobs in net.params.items()}
    solver.solve()
    assert solver.iter == 2
    for output in net.outputs:
        assert np.isfinite(net.blobs[output].data).all(), output
    changed = {
        layer for layer, blobs in net.params.items() if not np.array_equal(blobs[0].data, before[layer])
    }
    for layer, blobs in net.params.items():
        for blob in blobs:
            assert np.isfinite(blob.data).all() and np.isfinite(blob.diff).all(), layer
    fixed = {
        layer.name for layer in net.param.layer if layer.param and all(p.lr_mult == 0 for p in layer.param)
    }
    if name == "fcn8s":  # scores begin as zeros: below them, gradients begin with the second iteration
        assert {"score_fr", "score_pool3", "score_pool4"} <= changed
        assert not fixed & changed
    else:
        assert changed == set(net.params)


@pytest.mark.parametrize("name", NAMES)
def test_the_net_in_use_gives_what_it_should(name: str) -> None:
    net = caffe.Net(str(models.path(name, "deploy.prototxt")), caffe.TEST)
    rng = np.random.default_rng(1)
    data = net.blobs["data"]
    if name == "fcn8s":
        data.reshape(1, 3, 60, 50)
    elif name != "char_rnn":
        data.reshape(1, *data.shape[1:])
    some = rng.normal(0, 0.02, 4093).astype(np.float32)  # as many numbers as VGG has take long to draw
    for blobs in net.params.values():
        for blob in blobs:
            blob.data[...] = np.resize(some, blob.shape)
    for layer in net.param.layer:
        if layer.type == "BatchNorm":
            for blob in net.params[layer.name]:
                blob.data[...] = 1
    net.reshape()
    data.data[...] = 1 if name == "char_rnn" else rng.normal(0, 1, data.shape)
    (output,) = net.forward().values()
    assert np.isfinite(output).all()
    if net.param.layer[-1].type == "Softmax":
        axis = 2 if name == "char_rnn" else 1
        np.testing.assert_allclose(output.sum(axis), 1, rtol=1e-5)


def test_states_of_the_character_model_last_from_pass_to_pass() -> None:
    """What deploy.prototxt does step by step is what the net for training does at once."""
    net = models.without_data(
        models.path("char_rnn", "train_val.prototxt"), dict.fromkeys(("data", "cont", "target"), (6, 1))
    )
    whole = caffe.Net(net, caffe.TEST)
    single = caffe.Net(str(models.path("char_rnn", "deploy.prototxt")), caffe.TEST)
    for layer, blobs in whole.params.items():
        for blob, other in zip(blobs, single.params[layer], strict=True):
            other.data[...] = blob.data
    text = np.frombuffer(b"abcdef", np.uint8)
    whole.blobs["data"].data[:, 0] = text
    whole.blobs["cont"].data[:, 0] = [0, 1, 1, 1, 1, 1]
    whole.forward()
    scores = whole.blobs["predict"].data[:, 0]
    for step, code in enumerate(text):
        single.blobs["data"].data[...] = code
        single.blobs["cont"].data[...] = step > 0
        single.forward()
        np.testing.assert_allclose(single.blobs["predict"].data[0, 0], scores[step], rtol=1e-4, atol=1e-6)
