from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from caffe.blob import Blob
from caffe.errors import LabelError, LayerError, ShapeError
from caffe.gradient_check import check_gradient
from layer_types import support

TYPE = 'type: "InfogainLoss" '


def write_matrix(matrix, path="H.binaryproto"):
    blob = Blob(np.shape(matrix))
    blob.data[...] = matrix
    Path(path).write_bytes(blob.to_proto().SerializeToString())


def naive(scores, labels, matrix, ignore=None):
    """(sum of losses, how many positions count) for scores (N, C, I)."""
    total, count = 0.0, 0
    for n in range(scores.shape[0]):
        for i in range(scores.shape[2]):
            label = int(labels[n, i])
            if label == ignore:
                continue
            weights = [math.exp(s) for s in scores[n, :, i]]
            for k, w in enumerate(weights):
                total -= matrix[label, k] * math.log(w / sum(weights))
            count += 1
    return total, count


@pytest.fixture
def case(rng):
    return rng.standard_normal((2, 4, 3)), rng.integers(0, 4, (2, 3)), rng.uniform(-0.5, 1, (4, 4))


@pytest.mark.parametrize("where", ["file", "bottom"])
@pytest.mark.parametrize("ignore", [None, 1])
@pytest.mark.parametrize("mode", ["FULL", "VALID", "BATCH_SIZE", "NONE"])
def test_against_one_position_at_a_time(case, where, ignore, mode):
    scores, labels, matrix = case
    text = f"{TYPE} loss_param {{ normalization: {mode} "
    text += "}" if ignore is None else f"ignore_label: {ignore} }}"
    bottoms = [scores, labels]
    if where == "file":
        write_matrix(matrix)
        text += ' infogain_loss_param { source: "H.binaryproto" }'
    else:
        bottoms.append(matrix.reshape(1, 1, 4, 4))
    layer, bottom, top = support.build(text, *bottoms)
    total, count = naive(scores, labels, matrix, ignore)
    divisor = {"FULL": 6, "VALID": count, "BATCH_SIZE": 2, "NONE": 1}[mode]
    assert support.forward(layer, bottom, top)[0] == pytest.approx(total / divisor, rel=1e-6)


@pytest.mark.parametrize("axis, shape", [(1, (3, 4)), (-1, (2, 3, 4)), (0, (3, 3)), (1, (2, 4, 1, 3))])
def test_gradient(rng, axis, shape):
    classes = shape[axis]
    labels = rng.integers(0, classes, np.delete(shape, axis))
    check_gradient(
        f"{TYPE} infogain_loss_param {{ axis: {axis} }} loss_param {{ ignore_label: 0 }} loss_weight: 0.6",
        rng.standard_normal(shape),
        labels,
        rng.uniform(-0.5, 1, (classes, classes)),
        check_bottom=0,
    )


def test_the_identity_matrix_gives_softmax_with_loss(case):
    scores, labels, _ = case
    layer, bottom, top = support.build(TYPE, scores, labels, np.eye(4))
    other, other_bottom, other_top = support.build('type: "SoftmaxWithLoss"', scores, labels)
    np.testing.assert_allclose(
        support.forward(layer, bottom, top), support.forward(other, other_bottom, other_top)
    )
    layer.backward(top, [False] * 3, bottom)
    top[0].diff[...] = other_top[0].diff[...] = 2
    layer.backward(top, [True, False, False], bottom)
    other.backward(other_top, [True, False], other_bottom)
    np.testing.assert_allclose(bottom[0].diff, other_bottom[0].diff, atol=1e-12)


def test_all_labels_ignored_is_zero():
    layer, bottom, top = support.build(
        f"{TYPE} loss_param {{ ignore_label: -1 }}", np.ones((2, 3)), [-1, -1], np.ones((3, 3))
    )
    loss = support.forward(layer, bottom, top)[0]
    assert loss == 0 and not np.signbit(loss)  # logs say 0, not -0
    top[0].diff[...] = 1
    layer.backward(top, [True, False, False], bottom)
    assert not bottom[0].diff.any()


def test_a_second_top_holds_the_probabilities(case):
    scores, labels, matrix = case
    layer, bottom, top = support.build(TYPE, scores, labels, matrix, tops=2)
    wanted = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(support.forward(layer, bottom, top)[1], wanted)


def test_the_matrix_in_a_bottom_may_change_between_passes(case):
    scores, labels, matrix = case
    layer, bottom, top = support.build(TYPE, scores, labels, matrix)
    before = support.forward(layer, bottom, top)[0]
    bottom[2].data[...] *= 2
    assert support.forward(layer, bottom, top)[0] == pytest.approx(2 * before)


def test_a_label_outside_the_classes():
    layer, bottom, top = support.build(TYPE, np.zeros((2, 3)), [0, 3], np.ones((3, 3)))
    with pytest.raises(
        LabelError, match=r"label at position \[1\] of bottom\[1\] \(=3\) lies outside \[0, 3\)"
    ):
        layer.forward(bottom, top)


def test_gradients_of_labels_and_matrix_are_refused(case):
    layer, bottom, top = support.build(TYPE, *case)
    support.forward(layer, bottom, top)
    with pytest.raises(LayerError, match="InfogainLoss Layer cannot backpropagate to label inputs"):
        layer.backward(top, [True, True, False], bottom)
    with pytest.raises(LayerError, match="InfogainLoss Layer cannot backpropagate to infogain inputs"):
        layer.backward(top, [True, False, True], bottom)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "Infogain matrix source must be specified"),
        ('infogain_loss_param { source: "none.binaryproto" }', "cannot read 'none.binaryproto'"),
        ('infogain_loss_param { source: "rubbish" }', "'rubbish' holds no BlobProto"),
        ('infogain_loss_param { source: "short" }', "'short' holds no BlobProto"),
        ('infogain_loss_param { source: "2x2" }', r"must hold 3 x 3 numbers.*\(2, 2\)"),
        ('infogain_loss_param { source: "." }', "cannot read '.'"),
        ("loss_param { normalize: true }", "normalize is deprecated"),
    ],
)
def test_what_is_refused(text, message):
    Path("rubbish").write_bytes(b"\xff\xff\xff")
    Path("short").write_bytes(Blob((9,)).to_proto().SerializeToString()[:-10])
    write_matrix(np.eye(2), "2x2")
    with pytest.raises(LayerError, match=message):
        support.build(TYPE + text, np.zeros((2, 3)), [0, 1])


def test_a_matrix_of_another_size():
    with pytest.raises(ShapeError, match=r"must hold 3 x 3 numbers.*\(1, 1, 2, 2\)"):
        support.build(TYPE, np.zeros((2, 3)), [0, 1], np.zeros((1, 1, 2, 2)))
