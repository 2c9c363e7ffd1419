from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LabelError, LayerError, ShapeError
from layer_types import support
from layer_types.nets import net_of


def naive(scores, labels, axis, top_k, ignore):
    """(share of all, share per class): right if fewer than top_k others are at least as great."""
    classes = scores.shape[axis]
    flat = np.moveaxis(scores, axis, -1).reshape(-1, classes)
    right, present = np.zeros(classes), np.zeros(classes)
    for row, label in zip(flat, np.ravel(labels).astype(int), strict=True):
        if label == ignore:
            continue
        others = sum(1 for k, s in enumerate(row) if k != label and s >= row[label])
        present[label] += 1
        right[label] += others < top_k
    shares = [r / p if p else 0 for r, p in zip(right, present, strict=True)]
    return right.sum() / present.sum() if present.any() else 0, shares


@pytest.mark.parametrize(
    "shape, axis", [((9, 5), 1), ((2, 4, 3, 3), 1), ((2, 3, 5), 2), ((2, 3, 5), -1), ((4, 3), 0)]
)
@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize("ignore", [None, 0, -1])
@pytest.mark.parametrize("levels", [3, 1000])
def test_against_one_position_at_a_time(rng, shape, axis, top_k, ignore, levels):
    scores = rng.integers(0, levels, shape).astype(float)  # few levels: many ties
    labels = rng.integers(0, shape[axis], np.delete(shape, axis)).astype(float)
    if ignore is not None:
        labels[0] = ignore
    text = f"axis: {axis} top_k: {top_k}" + ("" if ignore is None else f" ignore_label: {ignore}")
    layer, bottom, top = support.build(
        f'type: "Accuracy" accuracy_param {{ {text} }}', scores, labels, tops=2
    )
    share, per_class = support.forward(layer, bottom, top)
    wanted, wanted_per_class = naive(scores, labels, axis, top_k, ignore)
    assert share == pytest.approx(wanted)
    np.testing.assert_allclose(per_class, wanted_per_class)


def run(text, scores, labels, tops=1):
    layer, bottom, top = support.build(f'type: "Accuracy" {text}', scores, labels, tops=tops)
    return support.forward(layer, bottom, top)


def test_defaults_are_the_best_class_on_axis_1():
    assert run("", [[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]], [1, 1, 1])[0] == pytest.approx(2 / 3)


def test_a_tie_is_a_miss_when_it_may_push_the_class_out():
    assert run("", [[1, 1, 0]], [0])[0] == 0
    assert run("accuracy_param { top_k: 2 }", [[1, 1, 0]], [0])[0] == 1
    assert run("accuracy_param { top_k: 2 }", [[1, 1, 1]], [0])[0] == 0


def test_no_labels_that_count_is_zero():
    share, per_class = run("accuracy_param { ignore_label: 1 }", np.eye(3), [1, 1, 1], tops=2)
    assert share == 0
    assert per_class.tolist() == [0, 0, 0]
    assert run("", np.zeros((0, 3)), [])[0] == 0


def test_not_a_number_is_never_right():
    assert run("", [[np.nan, 0], [0, np.nan], [1, np.nan]], [0, 1, 0])[0] == pytest.approx(1 / 3)


@pytest.mark.parametrize("label", [2, -1, np.nan])
def test_a_label_outside_the_classes(label):
    with pytest.raises(
        LabelError, match=r"layer 'L' \(Accuracy\): the label at position \[1\] .* outside \[0, 2\)"
    ):
        run("", np.eye(2), [0, label])


def test_the_error_says_how_to_ignore_the_label():
    with pytest.raises(LabelError, match="`accuracy_param { ignore_label: 255 }`"):
        run("", np.eye(2), [0, 255])


@pytest.mark.parametrize("top_k", [0, 4])
def test_top_k_outside_the_classes(top_k):
    with pytest.raises(LayerError, match="top_k must be less than or equal to the number of classes"):
        run(f"accuracy_param {{ top_k: {top_k} }}", np.eye(3), [0, 1, 2])


def test_as_many_labels_as_positions():
    with pytest.raises(ShapeError, match=r"Number of labels must match .*\(2, 3, 4\).*\(2,\)"):
        run("", np.zeros((2, 3, 4)), [0, 1])


def test_it_has_no_gradient():
    net = net_of(
        'layer { name: "L" type: "Accuracy" bottom: "x" bottom: "y" top: "t" }', x=np.eye(2), y=[0, 1]
    )
    net.forward()
    with pytest.raises(LayerError, match="this layer has no gradient"):
        net.backward()
