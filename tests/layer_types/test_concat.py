from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffe.errors import LayerError, ShapeError
from caffe.gradient_check import check_gradient
from layer_types import support

TEXT = 'type: "Concat" concat_param {{ {} }}'


@given(st.data())
def test_against_one_element_at_a_time(data):
    shape = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    shapes = [[*shape] for _ in sizes]
    for s, size in zip(shapes, sizes, strict=True):
        s[axis] = size
    bottoms = [np.arange(np.prod(s)).reshape(s) + 100 * i for i, s in enumerate(shapes)]
    layer, bottom, top = support.build(TEXT.format(f"axis: {axis}"), *bottoms)
    [out] = support.forward(layer, bottom, top)
    diff = np.arange(out.size).reshape(out.shape)
    diffs = support.backward(layer, bottom, top, diff)
    shape[axis] = sum(sizes)
    assert out.shape == tuple(shape)
    for place in np.ndindex(*shape):
        source, inside = 0, list(place)
        while inside[axis] >= sizes[source]:
            inside[axis] -= sizes[source]
            source += 1
        assert out[place] == bottoms[source][tuple(inside)]
        assert diffs[source][tuple(inside)] == diff[place]


def test_axis_1_is_the_default_under_both_names(rng):
    a, b = rng.standard_normal((2, 3, 2)), rng.standard_normal((2, 1, 2))
    for text in ("", "axis: 1", "concat_dim: 1"):
        layer, bottom, top = support.build(TEXT.format(text), a, b)
        assert support.forward(layer, bottom, top)[0].shape == (2, 4, 2)


def test_gradient(rng):
    check_gradient(TEXT.format("axis: -1"), rng.standard_normal((2, 3)), rng.standard_normal((2, 1)))
    check_gradient(TEXT.format("concat_dim: 0"), rng.standard_normal((2, 3)))


def test_only_the_gradient_asked_for_is_written():
    layer, bottom, top = support.build(TEXT.format(""), np.zeros((2, 1)), np.zeros((2, 1)))
    top[0].diff[...] = 1
    layer.backward(top, [False, True], bottom)
    assert (bottom[0].diff.sum(), bottom[1].diff.sum()) == (0, 2)


def test_a_single_bottom_is_the_top():
    layer, bottom, top = support.build(TEXT.format(""), np.ones((2, 3)))
    assert np.shares_memory(top[0].data, bottom[0].data)
    assert np.shares_memory(top[0].diff, bottom[0].diff)


@pytest.mark.parametrize(
    "text, a, b, kind, message",
    [
        (
            "axis: 1 concat_dim: 1",
            (2, 3),
            (2, 3),
            LayerError,
            "Either axis or concat_dim should be specified; not",
        ),
        (
            "",
            (2, 3, 4),
            (2, 3, 5),
            ShapeError,
            r"same shape, except at concat_axis \(=1\).*\(2, 3, 4\).*\(2, 3, 5\)",
        ),
        ("", (2, 3, 4), (2, 3), ShapeError, r"must have the same shape"),
        ("axis: 2", (2, 3), (2, 3), LayerError, r"axis \(=2\) must lie in \[-2, 2\)"),
        ("concat_dim: 2", (2, 3), (2, 3), LayerError, r"concat_dim \(=2\) must lie in"),
        ("concat_dim: 4294967295", (2, 3), (2, 3), LayerError, r"concat_dim \(=4294967295\) must lie in"),
    ],
)
def test_what_is_refused(text, a, b, kind, message):
    with pytest.raises(kind, match=message):
        support.build(TEXT.format(text), np.zeros(a), np.zeros(b))
