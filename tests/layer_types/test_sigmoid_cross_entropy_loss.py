from __future__ import annotations

import math

import numpy as np
import pytest

from caffe.errors import LayerError, ShapeError
from caffe.gradient_check import check_gradient
from layer_types import support

TYPE = 'type: "SigmoidCrossEntropyLoss" '


def naive(x, t, ignore=None):
    losses, diff = [], np.zeros(x.shape)
    for place, target in zip(np.ndindex(*x.shape), t.ravel(), strict=True):
        if ignore is not None and int(target) == ignore:
            continue
        p = 1 / (1 + math.exp(-x[place]))
        losses.append(-(target * math.log(p) + (1 - target) * math.log(1 - p)))
        diff[place] = p - target
    return losses, diff


@pytest.mark.parametrize(
    "shape, other", [((3, 4, 2), (3, 4, 2)), ((3, 4), (3, 2, 2)), ((1,), (1,)), ((0, 2), (0, 2))]
)
@pytest.mark.parametrize("ignore", [None, -1, 0])
@pytest.mark.parametrize(
    "mode",
    ["", "normalization: FULL", "normalization: VALID", "normalization: BATCH_SIZE", "normalization: NONE"],
)
def test_against_one_element_at_a_time(rng, shape, other, ignore, mode):
    x, t = rng.standard_normal(shape), rng.choice([-1.0, 0.0, 0.4, 1.0], other)
    text = f"{TYPE} loss_param {{ {mode} " + ("}" if ignore is None else f"ignore_label: {ignore} }}")
    layer, bottom, top = support.build(text, x, t)
    losses, diff = naive(x, t, ignore)
    divisor = {"FULL": x.size, "VALID": len(losses), "NONE": 1}.get(mode.rpartition(" ")[2], shape[0])
    assert support.forward(layer, bottom, top)[0] == pytest.approx(sum(losses) / max(divisor, 1))
    got = support.backward(layer, bottom, top, 0.5)[0]
    np.testing.assert_allclose(got, 0.5 * diff / max(divisor, 1), atol=1e-12)


@pytest.mark.parametrize("normalize, divisor", [("true", 3), ("false", 2)])
def test_normalize_is_the_older_name_of_two_modes(rng, normalize, divisor):
    x, t = rng.standard_normal((2, 2)), np.array([[1.0, 0.0], [-1.0, 1.0]])
    layer, bottom, top = support.build(
        f"{TYPE} loss_param {{ normalize: {normalize} ignore_label: -1 }}", x, t
    )
    assert support.forward(layer, bottom, top)[0] == pytest.approx(sum(naive(x, t, -1)[0]) / divisor)


def test_large_scores_lose_nothing():
    layer, bottom, top = support.build(TYPE, [[1e4, -1e4, 50, -800]], [[1, 1, 0, 0]], dtype=np.float32)
    with np.errstate(all="raise", under="ignore"):
        assert support.forward(layer, bottom, top)[0] == pytest.approx(1e4 + 50)
        np.testing.assert_allclose(support.backward(layer, bottom, top, 1)[0], [[0, -1, 1, 0]], atol=1e-7)


def test_all_targets_ignored_is_zero():
    layer, bottom, top = support.build(f"{TYPE} loss_param {{ ignore_label: 2 }}", [[np.nan, 1]], [[2, 2]])
    assert support.forward(layer, bottom, top) == [0]
    assert not support.backward(layer, bottom, top, 1)[0].any()


def test_gradient(rng):
    check_gradient(TYPE + "loss_weight: 0.3", rng.standard_normal((3, 4)), rng.uniform(0, 1, (3, 4)))


def test_counts_must_agree():
    with pytest.raises(ShapeError, match=r"inputs must have the same count.*\(2, 3\).*\(2, 4\)"):
        support.build(TYPE, np.zeros((2, 3)), np.zeros((2, 4)))


def test_the_gradient_of_targets_is_refused():
    layer, bottom, top = support.build(TYPE, np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(
        LayerError, match="SigmoidCrossEntropyLoss Layer cannot backpropagate to label inputs"
    ):
        layer.backward(top, [True, True], bottom)
