from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError, ShapeError
from caffe.gradient_check import check_gradient
from layer_types import support

TYPE = 'type: "BatchReindex"'


@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 2, 1, 2), (4, 0)])
@pytest.mark.parametrize("items", [[0, 1, 2, 3], [3, 3, 0, 3, 1, 0], [2], [], [1, 1]])
def test_against_one_item_at_a_time(rng, shape, items):
    x = rng.standard_normal(shape)
    layer, bottom, top = support.build(TYPE, x, np.array(items, float))
    [y] = support.forward(layer, bottom, top)
    assert y.shape == (len(items), *shape[1:])
    diff = rng.standard_normal(y.shape)
    wanted = np.zeros(shape)
    for m, n in enumerate(items):
        np.testing.assert_array_equal(y[m], x[n])
        wanted[n] += diff[m]
    top[0].diff[...] = diff
    bottom[0].diff[...] = 7
    layer.backward(top, [True, False], bottom)
    np.testing.assert_allclose(bottom[0].diff, wanted, atol=1e-12)


def test_gradient(rng):
    check_gradient(TYPE, rng.standard_normal((4, 3)), [3, 0, 3, 1], check_bottom=0)


@pytest.mark.parametrize("item", [4, -1, np.nan])
def test_an_item_outside(item):
    layer, bottom, top = support.build(TYPE, np.zeros((4, 3)), [0, item])
    with pytest.raises(
        LayerError, match=r"layer 'L' \(BatchReindex\): bottom\[1\]\[1\] \(=.*\) must lie in \[0, 4\)"
    ):
        layer.forward(bottom, top)


@pytest.mark.parametrize("x, items", [((4, 3), (2, 2)), ((4, 3), ()), ((), (2,))])
def test_axes_that_do_not_fit(x, items):
    with pytest.raises(ShapeError, match=r"bottom\[0\] must be \(N, …\) and bottom\[1\] \(M,\)"):
        support.build(TYPE, np.zeros(x), np.zeros(items))


def test_the_gradient_of_the_items_is_refused():
    layer, bottom, top = support.build(TYPE, np.zeros((4, 3)), [0, 1])
    with pytest.raises(LayerError, match="Cannot backprop to index"):
        layer.backward(top, [True, True], bottom)
