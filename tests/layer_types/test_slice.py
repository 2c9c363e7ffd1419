from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffe.errors import LayerError
from caffe.gradient_check import check_gradient
from layer_types import support

TEXT = 'type: "Slice" slice_param {{ {} }}'


@given(st.data())
def test_tops_are_the_parts_and_their_diffs_join(data):
    shape = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    points = sorted(data.draw(st.sets(st.integers(1, max(shape[axis], 1)), max_size=3)))
    if points and points[-1] > shape[axis]:
        points = []
    text = f"axis: {axis} " + " ".join(f"slice_point: {p}" for p in points)
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    layer, bottom, top = support.build(TEXT.format(text), x, tops=len(points) + 1)
    tops = support.forward(layer, bottom, top)
    begins = [0, *points, shape[axis]]
    for i, y in enumerate(tops):
        wanted = np.take(x, range(begins[i], begins[i + 1]), axis)
        np.testing.assert_array_equal(y, wanted)
    for blob in top:
        blob.diff[...] = blob.data * 2 + 1
    np.testing.assert_array_equal(support.backward(layer, bottom, top)[0], x * 2 + 1)


@given(tops=st.integers(1, 5), each=st.integers(0, 3), before=st.integers(0, 2), after=st.integers(0, 2))
def test_equal_parts(tops, each, before, after):
    x = np.arange(before * tops * each * after).reshape(before, tops * each, after)
    layer, bottom, top = support.build(TEXT.format(""), x, tops=tops)
    for i, y in enumerate(support.forward(layer, bottom, top)):
        np.testing.assert_array_equal(y, x[:, i * each : (i + 1) * each])


def test_slice_dim_is_the_older_name_of_axis():
    layer, bottom, top = support.build(TEXT.format("slice_dim: 0"), np.eye(4), tops=2)
    assert [y.shape for y in support.forward(layer, bottom, top)] == [(2, 4), (2, 4)]


def test_gradient(rng):
    check_gradient(TEXT.format("slice_point: 1"), rng.standard_normal((2, 3, 2)), tops=2)
    check_gradient(TEXT.format("axis: -1"), rng.standard_normal((2, 3, 2)), tops=2)
    check_gradient(TEXT.format(""), rng.standard_normal((2, 3)), tops=1)


def test_a_single_top_is_the_bottom():
    layer, bottom, top = support.build(TEXT.format(""), np.ones((2, 3)))
    assert np.shares_memory(top[0].data, bottom[0].data)
    assert np.shares_memory(top[0].diff, bottom[0].diff)


@pytest.mark.parametrize(
    "text, tops, message",
    [
        ("axis: 1 slice_dim: 1", 1, "Either axis or slice_dim should be specified; not both"),
        ("", 2, r"Number of top blobs \(2\) should evenly divide input slice axis \(5\).*\(2, 5, 3\)"),
        ("slice_point: 3", 3, "once less than there are tops: 1 points for 3 tops"),
        ("slice_point: 3", 1, "once less than there are tops: 1 points for 1 tops"),
        ("slice_point: 3 slice_point: 3", 3, r"must rise from above 0, but is \[3, 3\]"),
        ("slice_point: 0", 2, r"must rise from above 0, but is \[0\]"),
        ("slice_point: 6", 2, r"slice_point \(=6\) must not be greater than the size of axis 1 \(=5\)"),
        ("axis: 3", 1, r"axis \(=3\) must lie in \[-3, 3\)"),
        ("slice_dim: 4294967295", 1, r"slice_dim \(=4294967295\) must lie in"),
    ],
)
def test_what_is_refused(text, tops, message):
    with pytest.raises(LayerError, match=message):
        support.build(TEXT.format(text), np.zeros((2, 5, 3)), tops=tops)
