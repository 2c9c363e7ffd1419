from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError
from caffe.gradient_check import check_gradient
from layer_types import support

TEXT = 'type: "Flatten" flatten_param {{ {} }}'


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("", (2, 60)),
        ("axis: 0", (120,)),
        ("axis: 2", (2, 3, 20)),
        ("axis: -2", (2, 3, 20)),
        ("axis: 3", (2, 3, 4, 5)),
        ("axis: 1 end_axis: 2", (2, 12, 5)),
        ("axis: 0 end_axis: -3", (6, 4, 5)),
        ("axis: 2 end_axis: 1", (2, 3, 1, 4, 5)),
    ],
)
def test_shapes(text, wanted):
    x = np.arange(120.0).reshape(2, 3, 4, 5)
    layer, bottom, top = support.build(TEXT.format(text), x)
    [y] = support.forward(layer, bottom, top)
    assert y.shape == wanted
    np.testing.assert_array_equal(y.ravel(), x.ravel())
    np.testing.assert_array_equal(support.backward(layer, bottom, top, y + 1)[0], x + 1)


@pytest.mark.parametrize(
    "shape, wanted", [((0, 3, 4), (0, 12)), ((5, 0, 4), (5, 0)), ((7, 1), (7, 1)), ((3, 1, 1), (3, 1))]
)
def test_empty_and_unit_axes(shape, wanted):
    layer, bottom, top = support.build(TEXT.format(""), np.zeros(shape))
    assert support.forward(layer, bottom, top)[0].shape == wanted


def test_gradient(rng):
    check_gradient(TEXT.format(""), rng.standard_normal((2, 3, 2)))


def test_memory_is_shared_and_stays_so_after_a_reshape():
    layer, bottom, top = support.build(TEXT.format(""), np.zeros((2, 3, 4)))
    bottom[0].reshape(50, 3, 4)
    layer.reshape(bottom, top)
    assert top[0].shape == (50, 12)
    assert np.shares_memory(top[0].data, bottom[0].data)
    assert np.shares_memory(top[0].diff, bottom[0].diff)


@pytest.mark.parametrize(
    "text, message",
    [
        ("axis: 3", r"axis \(=3\) must lie in \[-3, 3\)"),
        ("end_axis: -4", r"end_axis \(=-4\) must lie in \[-3, 3\)"),
        ("axis: 2 end_axis: 0", r"end_axis \(=0\) must not lie before axis \(=2\)"),
    ],
)
def test_axes_outside(text, message):
    with pytest.raises(LayerError, match=message):
        support.build(TEXT.format(text), np.zeros((2, 3, 4)))


def test_in_place_is_refused():
    with pytest.raises(LayerError, match="Flatten Layer does not allow in-place computation"):
        support.build(TEXT.format(""), np.zeros((2, 3)), in_place=True)
