from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError, ShapeError
from caffe.gradient_check import check_gradient
from layer_types import support
from layer_types.nets import net_of


@pytest.mark.parametrize("selector", [[1, 0, 0, 1], [0, 0, 0, 1], [2, -1, 0.5, 1], [0, 0, 0, 0]])
@pytest.mark.parametrize("shape", [(4,), (4, 1, 1)])
def test_marked_items_are_kept(rng, selector, shape):
    a, b = rng.standard_normal((4, 3)), rng.standard_normal((4, 2, 2))
    layer, bottom, top = support.build('type: "Filter"', a, b, np.reshape(selector, shape), tops=2)
    layer.reshape(bottom, top)
    kept = [n for n in range(4) if selector[n]]
    tops = support.forward(layer, bottom, top)
    np.testing.assert_array_equal(tops[0], a[kept].reshape(-1, 3))
    np.testing.assert_array_equal(tops[1], b[kept].reshape(-1, 2, 2))
    top[0].diff[...], top[1].diff[...] = tops[0] + 1, tops[1] + 1
    for blob in bottom:
        blob.diff[...] = 7
    layer.backward(top, [True, False, False], bottom)
    for n in range(4):
        np.testing.assert_array_equal(bottom[0].diff[n], a[n] + 1 if n in kept else 0 * a[n])
    assert (bottom[1].diff == 7).all()


def test_gradient(rng):
    check_gradient('type: "Filter"', rng.standard_normal((4, 3)), [1, 0, 1, 1], check_bottom=0)


def test_tops_of_a_net_follow_the_selector():
    net = net_of(
        """layer { name: "L" type: "Filter" bottom: "x" bottom: "s" top: "t" }
        layer { name: "r" type: "Power" bottom: "t" top: "r" power_param { scale: 2 } }""",
        force_backward=False,
        x=[[1.0], [2.0], [3.0]],
        s=np.zeros(3),
    )
    assert net.blobs["r"].shape == (3, 1)  # nothing is known yet
    for selector, wanted in (
        ([0, 1, 1], [[4], [6]]),
        ([1, 0, 0], [[2]]),
        ([0, 0, 0], []),
        ([1, 1, 1], [[2], [4], [6]]),
    ):
        net.blobs["s"].data[...] = selector
        net.forward()
        assert net.blobs["r"].data.tolist() == wanted


def test_an_empty_batch():
    layer, bottom, top = support.build('type: "Filter"', np.zeros((0, 3)), np.zeros(0))
    assert support.forward(layer, bottom, top)[0].shape == (0, 3)


@pytest.mark.parametrize(
    "x, selector, tops, kind, message",
    [
        ((2, 3), (3,), 1, ShapeError, r"same 0th dimension as the selector.*\(2, 3\).*\(3,\)"),
        ((2, 3), (2, 3), 1, ShapeError, r"must be singletons \(1\), except the first.*\(2, 3\)"),
        ((2, 3), (), 1, ShapeError, r"must be singletons"),
        ((2, 3), (2,), 2, LayerError, "one top for each bottom but the selector: 2 tops, 2 bottoms"),
    ],
)
def test_what_is_refused(x, selector, tops, kind, message):
    with pytest.raises(kind, match=message):
        support.build('type: "Filter"', np.zeros(x), np.zeros(selector), tops=tops)


def test_the_gradient_of_the_selector_is_refused():
    layer, bottom, top = support.build('type: "Filter"', np.zeros((2, 3)), np.ones(2))
    with pytest.raises(LayerError, match="FilterLayer cannot backpropagate to filter index inputs"):
        layer.backward(top, [True, True], bottom)
