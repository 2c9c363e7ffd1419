from __future__ import annotations

import math

import numpy as np
import pytest

from caffe.errors import LabelError, LayerError
from caffe.gradient_check import check_gradient
from layer_types import support
from layer_types.nets import net_of

SCORES = [[1.0, 2.0, 3.0], [0.5, -0.5, 0.0]]


def naive(scores, labels, axis=1, ignore=None):
    """(losses at counted positions, gradient of their sum, number of axes before), one position at a time."""
    scores = np.moveaxis(np.asarray(scores, np.float64), axis, -1)
    diff, losses = np.zeros_like(scores), []
    for place, label in zip(np.ndindex(*scores.shape[:-1]), np.ravel(labels), strict=True):
        if label == ignore:
            continue
        weights = [math.exp(s) for s in scores[place]]
        p = np.array(weights) / sum(weights)
        losses.append(-math.log(p[int(label)]))
        p[int(label)] -= 1
        diff[place] = p
    return losses, np.moveaxis(diff, -1, axis)


def run(text, scores, labels, weight=1.0, **options):
    layer, bottom, top = support.build(f'type: "SoftmaxWithLoss" {text}', scores, labels, **options)
    [loss, *rest] = support.forward(layer, bottom, top)
    return loss, support.backward(layer, bottom, top, weight)[0], *rest


@pytest.mark.parametrize(
    "shape, axis",
    [
        ((4, 5), 1),
        ((2, 3, 4), 1),
        ((2, 3, 4), 2),
        ((2, 3, 4), -2),
        ((3, 3), 0),
        ((2, 1, 3, 2), 1),
        ((0, 3), 1),
    ],
)
@pytest.mark.parametrize("ignore", [None, 0])
@pytest.mark.parametrize("mode", ["FULL", "VALID", "BATCH_SIZE", "NONE"])
def test_against_one_position_at_a_time(rng, shape, axis, ignore, mode):
    scores = rng.standard_normal(shape)
    rest = np.delete(shape, axis)
    labels = rng.integers(0, shape[axis], rest)
    text = f"softmax_param {{ axis: {axis} }} loss_param {{ normalization: {mode} "
    text += "}" if ignore is None else f"ignore_label: {ignore} }}"
    loss, diff = run(text, scores, labels, weight=0.5)
    losses, gradient = naive(scores, labels, axis, ignore)
    items = int(np.prod(shape[: axis % len(shape)]))
    divisor = max({"FULL": labels.size, "VALID": len(losses), "BATCH_SIZE": items, "NONE": 1}[mode], 1)
    assert loss == pytest.approx(sum(losses) / divisor, rel=1e-9)
    np.testing.assert_allclose(diff, 0.5 * gradient / divisor, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("text, divisor", [("", 1), ("normalize: true", 1), ("normalize: false", 2)])
def test_normalize_is_the_older_name_of_two_modes(text, divisor):
    loss, _ = run(f"loss_param {{ ignore_label: 1 {text} }}", SCORES, [2, 1])
    assert loss == pytest.approx(naive(SCORES, [2, 1], ignore=1)[0][0] / divisor)


def test_normalization_outranks_normalize():
    loss, _ = run("loss_param { normalize: false normalization: NONE }", SCORES, [2, 1])
    assert loss == pytest.approx(sum(naive(SCORES, [2, 1])[0]))


@pytest.mark.parametrize("mode", ["FULL", "VALID", "BATCH_SIZE", "NONE"])
def test_all_labels_ignored_is_zero(mode):
    loss, diff = run(f"loss_param {{ ignore_label: 255 normalization: {mode} }}", SCORES, [255, 255])
    assert loss == 0 and not np.signbit(loss)  # logs say 0, not -0
    assert not diff.any()


def test_not_a_number_at_an_ignored_position_stays_there():
    loss, diff = run("loss_param { ignore_label: -1 }", [[np.nan] * 3, SCORES[1]], [-1, 0])
    assert loss == pytest.approx(naive(SCORES[1:], [0])[0][0])
    assert diff[0].tolist() == [0, 0, 0]
    assert np.isfinite(diff).all()


def test_an_impossible_label_costs_no_more_than_the_smallest_float():
    loss, diff = run("", [[1000.0, 0.0]], [1])
    assert loss == pytest.approx(-math.log(np.finfo(np.float32).tiny))
    np.testing.assert_allclose(diff, [[1, -1]])


def test_a_diff_that_the_user_wrote_scales_the_gradient():
    np.testing.assert_allclose(run("", SCORES, [0, 1], weight=-3)[1], -3 * run("", SCORES, [0, 1])[1])


def test_gradient(rng):
    check_gradient('type: "SoftmaxWithLoss"', rng.standard_normal((5, 4)), rng.integers(0, 4, 5))
    check_gradient(
        'type: "SoftmaxWithLoss" softmax_param { axis: -1 } loss_param { ignore_label: 2 } loss_weight: 0.7',
        rng.standard_normal((2, 3, 4)),
        rng.integers(0, 4, (2, 3)),
    )


def test_without_propagate_down_the_diff_is_left_alone():
    layer, bottom, top = support.build('type: "SoftmaxWithLoss"', SCORES, [0, 1])
    support.forward(layer, bottom, top)
    bottom[0].diff[...] = 7
    layer.backward(top, [False, False], bottom)
    assert (bottom[0].diff == 7).all()


@pytest.mark.parametrize("loss_weight", ["", "loss_weight: 1 loss_weight: 0"])
def test_a_second_top_holds_the_probabilities(loss_weight):
    net = net_of(
        f"""layer {{ name: "L" type: "SoftmaxWithLoss" bottom: "x" bottom: "y" top: "loss" top: "prob"
        {loss_weight} }}""",
        x=SCORES,
        y=[2, 0],
    )
    net.forward()
    wanted = np.exp(SCORES) / np.exp(SCORES).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(net.blobs["prob"].data, wanted, rtol=1e-6)
    assert net.blobs["loss"].data == pytest.approx(np.mean(naive(SCORES, [2, 0])[0]), rel=1e-6)
    net.backward()
    np.testing.assert_allclose(net.blobs["x"].diff, naive(SCORES, [2, 0])[1] / 2, rtol=1e-5)


def test_the_probabilities_can_be_no_loss():
    with pytest.raises(LayerError, match=r"top\[1\] holds the probabilities .* loss_weight must be 0"):
        support.build('type: "SoftmaxWithLoss" loss_weight: 1 loss_weight: 1', SCORES, [0, 1], tops=2)


def test_a_top_that_nobody_named_is_made():
    net = net_of('layer { name: "L" type: "SoftmaxWithLoss" bottom: "x" bottom: "y" }', x=SCORES, y=[2, 0])
    assert net.run_forward() == pytest.approx(np.mean(naive(SCORES, [2, 0])[0]), rel=1e-6)


@pytest.mark.parametrize("label", [3, -1, 1e9, np.nan, np.inf])
@pytest.mark.parametrize("ignore", ["", "loss_param { ignore_label: 7 }"])
def test_a_label_outside_the_classes(label, ignore):
    scores, labels = np.zeros((2, 3, 2)), np.zeros((2, 2))
    labels[1, 0] = label
    layer, bottom, top = support.build(f'type: "SoftmaxWithLoss" {ignore}', scores, labels)
    with pytest.raises(LabelError) as caught:
        layer.forward(bottom, top)
    text = str(caught.value)
    assert text.startswith("layer 'L' (SoftmaxWithLoss): the label at position [1, 0] of bottom[1] (=")
    assert "lies outside [0, 3)" in text
    assert ("ignore_label" in text) == (label in (3, -1, 1e9))


def test_a_fraction_of_a_label_is_cut_off():
    assert run("", SCORES, [2.9, -0.9])[0] == run("", SCORES, [2, 0])[0]


def test_the_gradient_of_labels_is_refused():
    layer, bottom, top = support.build('type: "SoftmaxWithLoss"', SCORES, [0, 1])
    support.forward(layer, bottom, top)
    with pytest.raises(LayerError, match="SoftmaxWithLoss Layer cannot backpropagate to label inputs"):
        layer.backward(top, [True, True], bottom)


@pytest.mark.parametrize(
    "scores, labels, text, message",
    [
        ((4, 3, 2), (4,), "", r"Number of labels must match number of predictions.*\(4, 3, 2\).*\(4,\)"),
        ((4, 3), (5,), "", r"same first dimension.*\(4, 3\).*\(5,\)"),
        ((4, 0), (4,), "", r"no classes"),
        ((), (), "", r"same first dimension"),
        ((4, 3), (4,), "softmax_param { axis: 2 }", r"axis \(=2\) must lie in \[-2, 2\)"),
    ],
)
def test_shapes_that_do_not_fit(scores, labels, text, message):
    with pytest.raises(LayerError, match=message):
        support.build(f'type: "SoftmaxWithLoss" {text}', np.zeros(scores), np.zeros(labels))


def test_it_follows_the_batch_size(rng):
    layer, bottom, top = support.build('type: "SoftmaxWithLoss"', rng.standard_normal((2, 3)), [0, 1])
    support.forward(layer, bottom, top)
    scores, labels = rng.standard_normal((5, 3)), [0, 1, 2, 1, 0]
    bottom[0].reshape(5, 3)
    bottom[1].reshape(5)
    bottom[0].data[...], bottom[1].data[...] = scores, labels
    layer.reshape(bottom, top)
    assert support.forward(layer, bottom, top)[0] == pytest.approx(np.mean(naive(scores, labels)[0]))
