from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffe.errors import LayerError, ShapeError
from caffe.gradient_check import check_gradient
from layer_types import support


def text_of(dims, axis=None, num_axes=None):
    fields = "shape { " + " ".join(f"dim: {d}" for d in dims) + " }"
    fields += "" if axis is None else f" axis: {axis}"
    fields += "" if num_axes is None else f" num_axes: {num_axes}"
    return f'type: "Reshape" reshape_param {{ {fields} }}'


@pytest.mark.parametrize(
    "dims, axis, num_axes, wanted",
    [
        ([6, 20], None, None, (6, 20)),
        ([0, -1], None, None, (2, 60)),
        ([-1], None, None, (120,)),
        ([0, -1, 5], None, None, (2, 12, 5)),
        ([0, 0, 0, 0], None, None, (2, 3, 4, 5)),
        ([1, 120, 1], None, None, (1, 120, 1)),
        ([-1], 1, None, (2, 60)),
        ([3, 1], 1, 1, (2, 3, 1, 4, 5)),
        ([12], 1, 2, (2, 12, 5)),
        ([-1], -3, 2, (2, 3, 20)),
        ([1, 1], 1, 0, (2, 1, 1, 3, 4, 5)),
        ([1], -1, 0, (2, 3, 4, 5, 1)),
        ([], 1, 0, (2, 3, 4, 5)),
        ([0, 1], 3, 1, (2, 3, 4, 5, 1)),
        ([0, -1], 2, None, (2, 3, 4, 5)),
    ],
)
def test_shapes(dims, axis, num_axes, wanted):
    x = np.arange(120.0).reshape(2, 3, 4, 5)
    layer, bottom, top = support.build(text_of(dims, axis, num_axes), x)
    [y] = support.forward(layer, bottom, top)
    assert y.shape == wanted
    np.testing.assert_array_equal(y.ravel(), x.ravel())
    np.testing.assert_array_equal(support.backward(layer, bottom, top, y + 1)[0], x + 1)


@pytest.mark.parametrize(
    "shape, dims, wanted",
    [
        ((0, 3, 4), [0, -1], (0, 12)),
        ((0, 3, 4), [-1, 12], (0, 12)),
        ((0, 3, 4), [0, 0, 2, -1], (0, 3, 2, 2)),
        ((5, 0), [0, -1], (5, 0)),
        ((), [1, 1], (1, 1)),
        ((), [-1], (1,)),
        ((1, 1), [], ()),
    ],
)
def test_empty_and_unit_axes(shape, dims, wanted):
    layer, bottom, top = support.build(text_of(dims), np.zeros(shape))
    assert support.forward(layer, bottom, top)[0].shape == wanted


@given(st.data())
def test_any_split_of_the_span_is_found_again(data):
    """A target shape is drawn first; then some of its dimensions are written as 0 or -1 instead."""
    shape = data.draw(st.lists(st.integers(0, 4), max_size=4))
    start = data.draw(st.integers(0, len(shape)))
    length = data.draw(st.integers(0, len(shape) - start))
    span = shape[start : start + length]
    # Joins or splits of the span's dimensions, keeping their product.
    new = list(span)
    if len(new) > 1 and data.draw(st.booleans()):
        new = [new[0] * new[1], *new[2:]]
    elif data.draw(st.booleans()):
        new.insert(data.draw(st.integers(0, len(new))), 1)
    dims = list(new)
    for i, d in enumerate(dims):
        if i < len(span) and d == span[i] and (d == 0 or data.draw(st.booleans())):
            dims[i] = 0
    if 0 in [d for i, d in enumerate(dims) if i >= len(span) or d != 0 or span[i] != new[i]]:
        return  # a joined dimension of size 0 cannot be written
    named = [i for i, d in enumerate(dims) if d > 0]
    if named and data.draw(st.booleans()):
        dims[data.draw(st.sampled_from(named))] = -1
    axis = data.draw(st.sampled_from([start, start - len(shape) - 1]))
    wanted = (*shape[:start], *new, *shape[start + length :])
    layer, bottom, top = support.build(text_of(dims, axis, length), np.zeros(shape))
    assert top[0].shape == wanted


def test_gradient(rng):
    check_gradient(text_of([0, -1]), rng.standard_normal((2, 3, 2)))


def test_memory_is_shared_and_stays_so_after_a_reshape():
    layer, bottom, top = support.build(text_of([0, -1]), np.zeros((2, 3, 4)))
    bottom[0].reshape(50, 3, 4)
    layer.reshape(bottom, top)
    assert top[0].shape == (50, 12)
    assert np.shares_memory(top[0].data, bottom[0].data)
    assert np.shares_memory(top[0].diff, bottom[0].diff)


@pytest.mark.parametrize(
    "dims, axis, num_axes, kind, message",
    [
        (
            [4],
            None,
            None,
            ShapeError,
            r"output count must match input count: \(4,\) has 4 elements.*\(2, 3\) 6",
        ),
        ([-1, -1], None, None, LayerError, r"multiple -1 dims; at most a single \(1\) value"),
        (
            [0, 0, 0],
            None,
            None,
            LayerError,
            "contains a 0, but there was no corresponding bottom axis to copy",
        ),
        ([-1, 4], None, None, ShapeError, r"bottom count \(6\) must be divisible by the product"),
        ([-2], None, None, LayerError, r"must hold dimensions, 0 or -1, but is \[-2\]"),
        ([1], 3, 0, LayerError, r"axis \(=3\) must lie in \[-3, 2\]"),
        ([1], -4, 0, LayerError, r"axis \(=-4\) must lie in \[-3, 2\]"),
        ([6], 1, 2, LayerError, r"num_axes \(=2\) from axis 1 reaches past the last axis"),
        ([6], 0, -2, LayerError, r"num_axes \(=-2\) must be >= 0, or -1"),
    ],
)
def test_what_is_refused(dims, axis, num_axes, kind, message):
    with pytest.raises(kind, match=message):
        support.build(text_of(dims, axis, num_axes), np.zeros((2, 3)))


def test_in_place_is_refused():
    with pytest.raises(LayerError, match="Reshape Layer does not allow in-place computation"):
        support.build(text_of([0, 0]), np.zeros((2, 3)), in_place=True)
