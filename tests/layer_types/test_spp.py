"""SPP against its bins in loops, its gradient, and its refusals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffe.errors import LayerError, ShapeError
from caffe.gradient_check import check_gradient
from caffe.proto import caffe_pb2
from layer_types.support import build, forward


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape)


def naive(x: np.ndarray, bins: int, method: str) -> np.ndarray:
    """(N, C · bins^axes): the value of each bin, channel by channel."""
    sizes = x.shape[2:]
    y = np.zeros((*x.shape[:2], *[bins] * len(sizes)))
    for bin in itertools.product(range(bins), repeat=len(sizes)):
        inside, area = [], 1
        for index, size in zip(bin, sizes, strict=True):
            kernel = math.ceil(size / bins)
            pad = math.ceil((kernel * bins - size) / 2)
            start = index * kernel - pad
            inside.append(slice(max(start, 0), min(start + kernel, size)))
            area *= min(start + kernel, size + pad) - start
        part = x[(slice(None), slice(None), *inside)].reshape(*x.shape[:2], -1)
        y[(..., *bin)] = part.max(axis=-1) if method == "MAX" else part.sum(axis=-1) / area
    return y.reshape(len(x), -1)


@given(
    spatial=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    height=st.integers(1, 3),
    method=st.sampled_from(["MAX", "AVE"]),
)
@settings(max_examples=40)
def test_equals_the_definition(spatial: list[int], height: int, method: str):
    x = random(2, 3, *spatial)
    text = f'type: "SPP" spp_param {{ pyramid_height: {height} pool: {method} }}'
    kernels = [[math.ceil(size / 2**level) for size in spatial] for level in range(height)]
    missing = [
        [k * 2**level - size for k, size in zip(ks, spatial, strict=True)] for level, ks in enumerate(kernels)
    ]
    if any(
        (m + 1) // 2 >= k
        for ms, ks in zip(missing, kernels, strict=True)
        for m, k in zip(ms, ks, strict=True)
    ):
        with pytest.raises(ShapeError, match="bins per axis"):
            build(text, x)
        return
    layer, bottom, top = build(text, x)
    (y,) = forward(layer, bottom, top)
    if height == 1:
        assert y.shape == (2, 3, *[1] * len(spatial))
    levels = [naive(x, 2**level, method) for level in range(height)]
    np.testing.assert_allclose(y.reshape(2, -1), np.concatenate(levels, axis=1), atol=1e-12)


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize(
    ("height", "shape"), [(1, (2, 3, 3, 4)), (3, (2, 2, 7, 8)), (2, (2, 2, 5)), (2, (1, 2, 2, 3, 2))]
)
def test_gradient(method: str, height: int, shape: tuple[int, ...]):
    distinct = 0.1 * np.random.default_rng(5).permutation(math.prod(shape)).reshape(shape)
    check_gradient(f'type: "SPP" spp_param {{ pyramid_height: {height} pool: {method} }}', distinct)


def test_gradient_of_stochastic_expectation():
    x = np.abs(random(2, 2, 4, 8)) + 0.01
    text = 'type: "SPP" spp_param { pyramid_height: 3 pool: STOCHASTIC }'
    check_gradient(text, x, phase=caffe_pb2.TEST)


def test_stochastic_levels_draw_on_their_own():
    """Two pixels: the drawn one of level 0 must not foretell those of level 1, which have no choice."""
    x = np.tile([1.0, 2, 3, 4], (200, 1, 1))
    layer, bottom, top = build('type: "SPP" spp_param { pyramid_height: 2 pool: STOCHASTIC }', x)
    whole, left, right = forward(layer, bottom, top)[0].T
    assert set(left) == {1, 2} and set(right) == {3, 4} and set(whole) == {1, 2, 3, 4}
    assert not (whole[right == 3] == 3).all()


def test_reshape_to_another_size_and_an_empty_batch():
    layer, bottom, top = build('type: "SPP" spp_param { pyramid_height: 2 }', random(2, 3, 7, 8))
    for shape in [(3, 3, 4, 4), (0, 3, 4, 4)]:
        bottom[0].reshape(shape)
        bottom[0].data[...] = random(*shape)
        layer.reshape(bottom, top)
        assert forward(layer, bottom, top)[0].shape == (shape[0], 15)
        layer.backward(top, [True], bottom)


@pytest.mark.parametrize(
    ("fields", "shape", "message"),
    [
        ("", (2, 3, 4, 4), r"pyramid_height \(=0\) must be at least 1"),
        ("pyramid_height: 2", (2, 3), "Input must have 4 axes, corresponding to"),
        ("pyramid_height: 4", (2, 3, 8, 7), r"asks for 2\^3 bins per axis"),
        ("pyramid_height: 4294967295", (2, 3, 8, 8), "more than the bottom"),
        ("pyramid_height: 3", (2, 3, 5, 8), "level 2 of the pyramid has 4 bins per axis"),
        ("pyramid_height: 2 pool: STOCHASTIC", (2, 3, 5, 4), "Padding implemented only for average and max"),
    ],
)
def test_refusals(fields: str, shape: tuple[int, ...], message: str):
    with pytest.raises(LayerError, match=message):
        build(f'type: "SPP" spp_param {{ {fields} }}', random(*shape))
