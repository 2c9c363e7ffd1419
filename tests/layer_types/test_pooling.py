"""Pooling against its definition in loops, its gradients, and its refusals."""

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
from layer_types.support import backward, build, forward

LOWEST = np.finfo(np.float32).min
TRAIN, TEST = caffe_pb2.TRAIN, caffe_pb2.TEST


def pooling(fields: str, x: np.ndarray, **options):
    return build(f'type: "Pooling" pooling_param {{ {fields} }}', x, **options)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape)


def distinct(*shape: int) -> np.ndarray:
    """No two values closer than 0.1, so that a small step changes no maximum."""
    return 0.1 * np.random.default_rng(5).permutation(math.prod(shape)).reshape(shape) - 1


def pooled(size: int, kernel: int, stride: int, pad: int, padded: bool, floor: bool) -> int:
    count = (math.floor if floor else math.ceil)((size + 2 * pad - kernel) / stride) + 1
    return count - 1 if padded and (count - 1) * stride >= size + pad else count


def naive(method: str, x: np.ndarray, kernel: int, stride: int, pad: int, floor: bool):
    """(top, mask) by loops over images, windows and pixels."""
    sizes = x.shape[2:]
    places = tuple(pooled(n, kernel, stride, pad, pad > 0, floor) for n in sizes)
    top, mask = np.zeros((*x.shape[:2], *places)), -np.ones((*x.shape[:2], *places))
    for place in itertools.product(*map(range, places)):
        start = [o * stride - pad for o in place]
        inside = [range(max(s, 0), min(s + kernel, n)) for s, n in zip(start, sizes, strict=True)]
        area = math.prod(min(s + kernel, n + pad) - s for s, n in zip(start, sizes, strict=True))
        for n, c in itertools.product(*map(range, x.shape[:2])):
            total, best, where = 0.0, LOWEST, -1
            for pixel in itertools.product(*inside):
                value = x[(n, c, *pixel)]
                total += value
                if value > best:
                    best, where = value, np.ravel_multi_index(pixel, sizes)
            mask[(n, c, *place)] = where
            if method == "MAX":
                top[(n, c, *place)] = best
            else:
                top[(n, c, *place)] = total / area if area else np.nan
    return top, mask


@st.composite
def cases(draw: st.DrawFn):
    kernel = draw(st.integers(1, 4))
    pad = draw(st.integers(0, kernel - 1))
    spatial = draw(st.lists(st.integers(max(1, kernel - 2 * pad), 6), min_size=1, max_size=3))
    shape = (draw(st.sampled_from([0, 1, 2])), draw(st.integers(1, 2)), *spatial)
    return shape, kernel, draw(st.integers(1, 3)), pad, draw(st.booleans())


def fields_of(method: str, kernel: int, stride: int, pad: int, floor: bool) -> str:
    mode = "FLOOR" if floor else "CEIL"
    return f"pool: {method} kernel_size: {kernel} stride: {stride} pad: {pad} round_mode: {mode}"


@given(cases())
@settings(max_examples=40)
def test_max_equals_the_definition(case):
    shape, *arguments = case
    # Whole numbers, so that there are ties.
    x = np.random.default_rng(5).integers(-3, 3, shape).astype(float)
    layer, bottom, top = pooling(fields_of("MAX", *arguments), x, tops=2)
    y, mask = forward(layer, bottom, top)
    expected, source = naive("MAX", x, *arguments)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(mask, source)
    dy = random(*y.shape)
    expected_dx = np.zeros(x.shape)
    for n, c in itertools.product(*map(range, x.shape[:2])):
        plane = expected_dx[n, c].reshape(-1)
        for place in itertools.product(*map(range, y.shape[2:])):
            if source[(n, c, *place)] >= 0:
                plane[int(source[(n, c, *place)])] += dy[(n, c, *place)]
    np.testing.assert_allclose(backward(layer, bottom, top, dy)[0], expected_dx, atol=1e-12)

    test_phase, test_bottom, test_top = pooling(fields_of("MAX", *arguments), x, phase=TEST)
    np.testing.assert_array_equal(forward(test_phase, test_bottom, test_top)[0], expected)
    np.testing.assert_allclose(backward(test_phase, test_bottom, test_top, dy)[0], expected_dx, atol=1e-12)


@given(cases())
@settings(max_examples=40)
def test_average_equals_the_definition(case):
    shape, *arguments = case
    x = random(*shape)
    layer, bottom, top = pooling(fields_of("AVE", *arguments), x)
    (y,) = forward(layer, bottom, top)
    expected, _ = naive("AVE", x, *arguments)
    np.testing.assert_allclose(y, expected, atol=1e-12)
    # Linear: <dy, y> = <dx, x>.
    dy = np.where(np.isnan(y), 0, random(*y.shape))
    (dx,) = backward(layer, bottom, top, dy)
    assert (x * dx).sum() == pytest.approx((np.nan_to_num(y) * dy).sum(), abs=1e-9)


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize("phase", [TRAIN, TEST])
@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        ("kernel_size: 2 stride: 2", (2, 2, 4, 5)),
        ("kernel_size: 3 stride: 2 pad: 1", (1, 2, 6, 5)),
        ("kernel_h: 3 kernel_w: 2 stride_h: 1 stride_w: 3 pad_h: 2 pad_w: 0", (1, 2, 4, 5)),
        ("global_pooling: true", (2, 3, 3, 4)),
        ("kernel_size: 3 stride: 2", (2, 2, 7)),
        ("kernel_size: 2 stride: 1", (1, 1, 3, 2, 4)),
        ("kernel_size: 2 stride: 3 round_mode: FLOOR", (1, 1, 8, 7)),
        ("kernel_size: 4 stride: 2 pad: 1", (1, 2, 5, 5)),
    ],
)
def test_gradient(method: str, phase: int, fields: str, shape: tuple[int, ...]):
    check_gradient(
        f'type: "Pooling" pooling_param {{ pool: {method} {fields} }}', distinct(*shape), phase=phase, tops=1
    )


@pytest.mark.parametrize(
    "fields", ["kernel_size: 2 stride: 2", "kernel_size: 3 stride: 2", "global_pooling: true"]
)
def test_stochastic_gradient_of_the_expectation(fields: str):
    text = f'type: "Pooling" pooling_param {{ pool: STOCHASTIC {fields} }}'
    check_gradient(text, np.abs(distinct(2, 2, 5, 4)) + 0.01, phase=TEST)
    check_gradient(text, distinct(2, 2, 5, 4) - 1, phase=TEST, kinks=[0])


@pytest.mark.parametrize("method", ["AVE", "MAX"])
def test_rectangles_and_the_clip_of_both_axes(method: str):
    """Padding on one axis clips the last window on both: the original's rule."""
    fields = f"pool: {method} kernel_size: 1 stride: 4 "
    assert pooling(fields, random(1, 1, 6, 6))[2][0].shape == (1, 1, 3, 3)
    fields = f"pool: {method} kernel_h: 2 kernel_w: 1 stride: 4 pad_h: 1 pad_w: 0"
    assert pooling(fields, random(1, 1, 6, 6))[2][0].shape == (1, 1, 2, 2)


def test_a_window_outside_the_image():
    """Without padding, where the stride is larger than the kernel: -FLT_MAX, index -1, NaN, no gradient."""
    x = np.ones((1, 1, 3, 9))
    layer, bottom, top = pooling("kernel_size: 2 stride: 3", x, tops=2)
    y, mask = forward(layer, bottom, top)
    assert y.shape == (1, 1, 2, 4)
    assert y[0, 0, 0, 3] == y[0, 0, 1, 0] == LOWEST
    assert mask[0, 0, 0, 3] == mask[0, 0, 1, 0] == -1
    assert backward(layer, bottom, top, y * 0 + 1)[0].sum() == 3
    layer, bottom, top = pooling("pool: AVE kernel_size: 2 stride: 3", x)
    y = forward(layer, bottom, top)[0]
    assert np.isnan(y[0, 0, 0, 3]) and np.isnan(y[0, 0, 1, 0])
    assert backward(layer, bottom, top, y * 0 + 1)[0][0, 0, 0, 0] == 0.25
    for phase in (TRAIN, TEST):
        layer, bottom, top = pooling("pool: STOCHASTIC kernel_size: 2 stride: 3", x, phase=phase)
        np.testing.assert_array_equal(forward(layer, bottom, top)[0], [[[[1, 1, 1, 0], [0, 0, 0, 0]]]])
        assert backward(layer, bottom, top, np.ones((1, 1, 2, 4)))[0].sum() == 3


@pytest.mark.parametrize("fields", ["kernel_size: 2 stride: 2", "kernel_size: 4"])
def test_stochastic_draws_in_proportion(fields: str):
    """Every window holds 1, 2, 3 and 4 (four of each where it is larger), and nothing below 0 is drawn."""
    tile = np.array([[1, 2], [3, 4]])
    x = np.tile(np.tile(tile, (2, 2)), (4000, 1, 1, 1)).astype(float)
    layer, bottom, top = pooling(f"pool: STOCHASTIC {fields}", x)
    (y,) = forward(layer, bottom, top)
    shares = [(y == value).mean() for value in (1, 2, 3, 4)]
    np.testing.assert_allclose(shares, [0.1, 0.2, 0.3, 0.4], atol=0.03)
    (dx,) = backward(layer, bottom, top, y)
    np.testing.assert_allclose(dx.sum(axis=(2, 3)), y.sum(axis=(2, 3)))
    assert (dx[dx != 0] == x[dx != 0]).all()

    bottom[0].data[:, :, 0::2] = -1
    y = forward(layer, bottom, top)[0]
    assert set(np.unique(y)) == {3, 4}


def test_stochastic_draws_anew_each_pass_and_again_with_the_same_counters():
    x = np.abs(random(2, 3, 8, 8))
    layer, bottom, top = pooling("pool: STOCHASTIC kernel_size: 2 stride: 2", x)
    first = forward(layer, bottom, top)[0]
    layer.run.sub_iteration += 1
    assert not np.array_equal(first, forward(layer, bottom, top)[0])
    layer.run.sub_iteration -= 1
    np.testing.assert_array_equal(first, forward(layer, bottom, top)[0])


@pytest.mark.parametrize("fields", ["kernel_size: 2 stride: 2", "kernel_size: 4"])
def test_stochastic_of_zeros(fields: str):
    for phase in (TRAIN, TEST):
        layer, bottom, top = pooling(f"pool: STOCHASTIC {fields}", np.zeros((1, 2, 4, 4)), phase=phase)
        y = forward(layer, bottom, top)[0]
        assert not y.any()
        assert np.isfinite(backward(layer, bottom, top, y + 1)[0]).all()


def test_stochastic_expectation():
    x = np.array([1.0, 2, 3, 4]).reshape(1, 1, 2, 2)
    layer, bottom, top = pooling("pool: STOCHASTIC kernel_size: 2", x, phase=TEST)
    assert forward(layer, bottom, top)[0].item() == pytest.approx(30 / 10)


def test_large_kernels_number_their_taps_in_more_than_a_byte():
    x = distinct(1, 1, 40, 40)
    layer, bottom, top = pooling("kernel_size: 20", x, tops=2)
    y, mask = forward(layer, bottom, top)
    windows = np.lib.stride_tricks.sliding_window_view(x[0, 0], (20, 20)).max(axis=(2, 3))
    np.testing.assert_array_equal(y[0, 0], windows)
    np.testing.assert_array_equal(x.reshape(-1)[mask.astype(int)], y)


@pytest.mark.parametrize("method", ["MAX", "AVE", "STOCHASTIC"])
def test_a_kernel_far_larger_than_the_image_is_no_burden(method: str):
    pad = "" if method == "STOCHASTIC" else "pad: 1000000000"
    fields = f"pool: {method} kernel_size: {2_000_000_000 if pad else 4} stride: 2000000000 {pad}"
    layer, bottom, top = pooling(fields, np.ones((1, 1, 4, 4)))
    (y,) = forward(layer, bottom, top)
    assert y.size == 1
    assert y.item() == pytest.approx(16 / 1_000_000_004**2 if method == "AVE" else 1)
    backward(layer, bottom, top, y)


def test_chunks_of_images_change_nothing():
    x = distinct(40, 8, 32, 32)
    for method in ("MAX", "AVE"):
        layer, bottom, top = pooling(f"pool: {method} kernel_size: 3 stride: 2", x)
        assert len(layer.chunks) > 1
        (y,) = forward(layer, bottom, top)
        (dx,) = backward(layer, bottom, top, y)
        one, one_bottom, one_top = pooling(f"pool: {method} kernel_size: 3 stride: 2", x[17:18])
        np.testing.assert_allclose(forward(one, one_bottom, one_top)[0][0], y[17])
        np.testing.assert_allclose(backward(one, one_bottom, one_top, y[17:18])[0][0], dx[17])


@pytest.mark.parametrize(
    ("fields", "wanted"), [("kernel_size: 3 stride: 2", 56), ("kernel_size: 3 stride: 2 pad: 1", 33)]
)
def test_sizes_round_up_where_a_convolutions_round_down(fields, wanted):
    size = 112 if wanted == 56 else 64
    x = np.zeros((1, 1, size, size))
    _, _, (top,) = build(f'type: "Pooling" pooling_param {{ {fields} }}', x)
    assert top.shape == (1, 1, wanted, wanted)
    _, _, (top,) = build(f'type: "Convolution" convolution_param {{ num_output: 1 {fields} }}', x)
    assert top.shape == (1, 1, wanted - 1, wanted - 1)


def test_global_pooling_follows_the_bottom():
    layer, bottom, top = pooling("pool: AVE global_pooling: true", random(2, 3, 4, 5))
    bottom[0].reshape(1, 3, 7, 2)
    bottom[0].data[...] = random(1, 3, 7, 2)
    layer.reshape(bottom, top)
    np.testing.assert_allclose(forward(layer, bottom, top)[0][..., 0, 0], bottom[0].data.mean(axis=(2, 3)))


def test_nan_is_not_hidden():
    x = random(1, 1, 4, 4)
    x[0, 0, 1, 1] = np.nan
    for method in ("MAX", "AVE"):
        layer, bottom, top = pooling(f"pool: {method} kernel_size: 2 stride: 2", x)
        np.testing.assert_array_equal(
            np.isnan(forward(layer, bottom, top)[0][0, 0]), [[True, False], [False, False]]
        )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("", "Filter size is kernel_size OR kernel_h and kernel_w; not both"),
        ("kernel_h: 2", r"not one of the two alone \(given: kernel_h\)"),
        (
            "kernel_size: 2 kernel_h: 2 kernel_w: 2",
            "Filter size is kernel_size OR kernel_h and kernel_w; not both",
        ),
        ("kernel_size: 0", "Filter dimensions cannot be zero"),
        ("kernel_size: 2 stride: 2 stride_h: 2 stride_w: 2", "Stride is stride OR stride_h and stride_w"),
        ("kernel_size: 2 stride_w: 2", "Stride is stride OR stride_h and stride_w"),
        ("kernel_size: 2 stride: 0", "Stride dimensions cannot be zero"),
        ("kernel_size: 3 pad: 1 pad_h: 1", "pad is pad OR pad_h and pad_w"),
        ("kernel_size: 2 pad: 2", r"pad \(2, 2\) must be smaller than the kernel \(2, 2\)"),
        ("kernel_size: 2 pad: 1 pool: STOCHASTIC", "Padding implemented only for average and max pooling"),
        ("global_pooling: true kernel_size: 2", "With Global_pooling: true Filter size cannot specified"),
        ("global_pooling: true stride: 2", "With Global_pooling: true; only pad = 0 and stride = 1"),
        ("global_pooling: true pad: 1", "With Global_pooling: true; only pad = 0 and stride = 1"),
        ("kernel_size: 9", r"the top would have spatial shape \(-3, -4\)"),
    ],
)
def test_refusals(fields: str, message: str):
    with pytest.raises(LayerError, match=message):
        pooling(fields, random(2, 3, 5, 4))


def test_shapes_that_are_refused():
    with pytest.raises(ShapeError, match="Input must have 4 axes, corresponding to"):
        pooling("kernel_size: 2", random(2, 3))
    with pytest.raises(LayerError, match="kernel_h & kernel_w can only be used for 2D pooling"):
        pooling("kernel_h: 2 kernel_w: 2", random(2, 3, 4))
    layer, bottom, top = pooling("kernel_size: 2", random(2, 3, 4, 4))
    bottom[0].reshape(2, 3, 4)
    with pytest.raises(ShapeError, match="bottom num_axes may not change"):
        layer.reshape(bottom, top)


def test_only_max_has_a_second_top():
    with pytest.raises(LayerError, match="only MAX has a second top"):
        pooling("kernel_size: 2 pool: AVE", random(1, 1, 2, 2), tops=2)
