"""LRN against its definition in loops, its gradient, and its refusals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffe.errors import LayerError, ShapeError
from caffe.gradient_check import check_gradient
from layer_types.support import backward, build, forward


def lrn(fields: str, x: np.ndarray):
    return build(f'type: "LRN" lrn_param {{ {fields} }}', x)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape)


def naive(x: np.ndarray, size: int, alpha: float, beta: float, k: float, within: bool) -> np.ndarray:
    y = np.zeros(x.shape)
    axes = range(2, x.ndim) if within else [1]
    for place in itertools.product(*map(range, x.shape)):
        window = [slice(i, i + 1) for i in place]
        for axis in axes:
            window[axis] = slice(max(place[axis] - size // 2, 0), place[axis] + size // 2 + 1)
        energy = (1 if within else k) + alpha / size ** len(axes) * (x[tuple(window)] ** 2).sum()
        y[place] = x[place] * energy**-beta
    return y


@given(
    shape=st.tuples(st.sampled_from([0, 1, 2]), st.integers(1, 7), st.integers(1, 5), st.integers(1, 4)),
    axes=st.integers(2, 4),
    size=st.sampled_from([1, 3, 5, 9]),
    within=st.booleans(),
)
@settings(max_examples=40)
def test_equals_the_definition(shape: tuple[int, ...], axes: int, size: int, within: bool):
    x = random(*shape[: max(axes, 3) if within else axes])
    region = "WITHIN_CHANNEL" if within else "ACROSS_CHANNELS"
    fields = f"local_size: {size} alpha: 1.5 beta: 0.7 k: 2 norm_region: {region}"
    layer, bottom, top = lrn(fields, x)
    (y,) = forward(layer, bottom, top)
    np.testing.assert_allclose(y, naive(x, size, 1.5, np.float32(0.7), 2, within), rtol=1e-6)


@pytest.mark.parametrize("region", ["ACROSS_CHANNELS", "WITHIN_CHANNEL"])
@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        ("", (2, 7, 3, 2)),
        ("local_size: 3 alpha: 0.5 beta: 0.6 k: 2", (1, 4, 5, 4)),
        ("local_size: 9 beta: 1", (1, 3, 2, 5)),
        ("local_size: 1", (1, 3, 4, 2)),
        ("local_size: 3", (2, 5, 4)),
        ("local_size: 3", (1, 2, 3, 2, 3)),
    ],
)
def test_gradient(region: str, fields: str, shape: tuple[int, ...]):
    check_gradient(f'type: "LRN" lrn_param {{ {fields} norm_region: {region} }}', random(*shape))


def test_chunks_of_images_change_nothing():
    x = random(9, 3, 100, 100)
    layer, bottom, top = lrn("local_size: 3", x)
    assert len(layer.chunks) > 1
    (y,) = forward(layer, bottom, top)
    (dx,) = backward(layer, bottom, top, y)
    one, one_bottom, one_top = lrn("local_size: 3", x[7:8])
    np.testing.assert_allclose(forward(one, one_bottom, one_top)[0][0], y[7])
    np.testing.assert_allclose(backward(one, one_bottom, one_top, y[7:8])[0][0], dx[7])


def test_a_window_longer_than_everything_is_no_burden():
    x = random(1, 3, 2, 2)
    layer, bottom, top = lrn("local_size: 4294967295 alpha: 4294967295", x)
    energy = 1 + (x**2).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(forward(layer, bottom, top)[0], x * energy**-0.75, rtol=1e-6)


def test_in_place_forward():
    x = random(2, 5, 3, 3)
    layer, bottom, _ = lrn("", x)
    layer.forward(bottom, bottom)
    np.testing.assert_allclose(bottom[0].cpu_data(), naive(x, 5, 1, 0.75, 1, False))
    assert layer.in_place_refusal()


@pytest.mark.parametrize(
    ("fields", "shape", "message"),
    [
        ("local_size: 4", (2, 3, 4, 4), r"LRN only supports odd values for local_size \(=4\)"),
        ("local_size: 0", (2, 3, 4, 4), "odd values"),
        ("", (2,), "Input must have 4 axes, corresponding to"),
        ("norm_region: WITHIN_CHANNEL", (2, 3), "3 at least"),
    ],
)
def test_refusals(fields: str, shape: tuple[int, ...], message: str):
    with pytest.raises(LayerError, match=message):
        lrn(fields, random(*shape))


def test_other_number_of_axes_is_refused():
    layer, bottom, top = lrn("", random(2, 3, 4, 4))
    bottom[0].reshape(2, 3, 4)
    with pytest.raises(ShapeError, match="num_axes may not change"):
        layer.reshape(bottom, top)
