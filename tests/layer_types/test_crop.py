from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffe.errors import LayerError, ShapeError
from caffe.gradient_check import check_gradient
from layer_types import support


def text_of(axis=None, offsets=()):
    fields = "" if axis is None else f"axis: {axis} "
    return f'type: "Crop" crop_param {{ {fields}{" ".join(f"offset: {o}" for o in offsets)} }}'


@given(st.data())
def test_against_one_element_at_a_time(data):
    source = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    n = len(source)
    axis = data.draw(st.integers(-n, n - 1))
    first = axis % n
    kept = [data.draw(st.integers(0, size)) for size in source[first:]]
    room = [size - k for size, k in zip(source[first:], kept, strict=True)]
    style = data.draw(st.sampled_from(["none", "one", "each"]))
    if style == "none":
        offsets = []
    elif style == "one":
        offsets = [data.draw(st.integers(0, min(room)))]
    else:
        offsets = [data.draw(st.integers(0, r)) for r in room]
    begin = [0] * first + (offsets or [0]) * (n - first if len(offsets) < 2 else 1)
    like = [data.draw(st.integers(1, 3)) for _ in range(first)] + kept
    x = np.arange(np.prod(source, dtype=int)).reshape(source)
    layer, bottom, top = support.build(text_of(axis, offsets), x, np.zeros(like))
    [y] = support.forward(layer, bottom, top)
    assert y.shape == (*source[:first], *kept)
    diff = np.arange(y.size).reshape(y.shape) + 1.0
    dx, dlike = support.backward(layer, bottom, top, diff)
    wanted = np.zeros(source)
    for place in np.ndindex(*y.shape):
        there = tuple(p + b for p, b in zip(place, begin, strict=True))
        assert y[place] == x[there]
        wanted[there] = diff[place]
    np.testing.assert_array_equal(dx, wanted)
    assert not dlike.any()


def test_axis_2_and_offset_0_are_the_defaults():
    x = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    layer, bottom, top = support.build('type: "Crop"', x, np.zeros((7, 7, 2, 3)))
    np.testing.assert_array_equal(support.forward(layer, bottom, top)[0], x[:, :, :2, :3])


def test_gradient(rng):
    check_gradient(text_of(1, [1, 0]), rng.standard_normal((2, 3, 4)), np.zeros((1, 2, 2)))


def test_only_the_gradients_asked_for_are_written():
    layer, bottom, top = support.build(text_of(0), np.zeros(3), np.zeros(2))
    for blob in bottom:
        blob.diff[...] = 7
    layer.backward(top, [False, False], bottom)
    assert all((blob.diff == 7).all() for blob in bottom)


@pytest.mark.parametrize(
    "text, like, kind, message",
    [
        (
            text_of(None, [2]),
            (1, 2, 4, 4),
            ShapeError,
            r"crop for dimension 2 is out-of-bounds with size 4 and offset 2",
        ),
        (text_of(None, [1, 2]), (1, 2, 4, 4), ShapeError, r"dimension 3 .* bottom\[0\] has size 5"),
        (text_of(), (1, 2, 4, 6), ShapeError, "dimension 3 is out-of-bounds with size 6 and offset 0"),
        (text_of(None, [1, 1, 1]), (1, 2, 3, 3), LayerError, "3 offsets, 2 axes from axis 2"),
        (text_of(4), (1, 2, 3, 3), LayerError, r"axis \(=4\) must lie in \[-4, 4\)"),
        (text_of(), (3, 3), ShapeError, r"sizes for all axes of bottom\[0\].*\(3, 3\).*\(1, 2, 5, 5\)"),
    ],
)
def test_what_is_refused(text, like, kind, message):
    with pytest.raises(kind, match=message):
        support.build(text, np.zeros((1, 2, 5, 5)), np.zeros(like))
