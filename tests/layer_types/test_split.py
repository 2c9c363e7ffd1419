from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError
from caffe.gradient_check import check_gradient
from layer_types import support
from layer_types.nets import net_of


@pytest.mark.parametrize("tops", [1, 2, 3, 5])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 2), (1, 1, 2)])
def test_tops_are_the_bottom_and_diffs_add_up(rng, tops, shape):
    x = rng.standard_normal(shape)
    layer, bottom, top = support.build('type: "Split"', x, tops=tops)
    for y in support.forward(layer, bottom, top):
        np.testing.assert_array_equal(y, x)
    diffs = rng.standard_normal((tops, *shape))
    np.testing.assert_allclose(support.backward(layer, bottom, top, *diffs)[0], diffs.sum(axis=0))


def test_gradient(rng):
    check_gradient('type: "Split"', rng.standard_normal((2, 3)), tops=3)


def test_data_is_shared_and_stays_so_after_a_reshape():
    layer, bottom, top = support.build('type: "Split"', np.zeros((2, 3)), tops=2)
    bottom[0].reshape(50, 3)
    layer.reshape(bottom, top)
    bottom[0].data[...] = 4
    assert all(t.shape == (50, 3) and (t.data == 4).all() for t in top)
    assert all(np.shares_memory(t.data, bottom[0].data) for t in top)
    assert not np.shares_memory(top[0].diff, top[1].diff)


def test_a_net_splits_what_has_two_readers():
    net = net_of(
        """layer { name: "a" type: "Power" bottom: "x" top: "a" power_param { scale: 2 } }
        layer { name: "b" type: "Power" bottom: "x" top: "b" power_param { scale: 3 } }""",
        x=[1.0, 2.0],
    )
    net.forward()
    assert net.blobs["b"].data.tolist() == [3, 6]
    net.blobs["a"].diff[...], net.blobs["b"].diff[...] = [1, 10], [5, 7]
    net.backward()
    assert net.blobs["x"].diff.tolist() == [2 + 15, 20 + 21]


def test_in_place_is_refused():
    with pytest.raises(LayerError, match="Split Layer does not allow in-place computation"):
        support.build('type: "Split"', np.zeros(3), in_place=True)
