"""Convolution against its definition in loops, its gradient, and its refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from caffe.errors import LayerError, ShapeError
from caffe.gradient_check import check_gradient
from layer_types.support import backward, build, forward
from layer_types.windows import Case, cases, convolve

FILL = 'weight_filler { type: "gaussian" } bias_filler { type: "gaussian" }'


def convolution(fields: str, *bottoms: np.ndarray, **options):
    text = f'type: "Convolution" convolution_param {{ {fields} {FILL} }}'
    return build(text, *bottoms, tops=len(bottoms), **options)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape)


@given(cases())
@settings(max_examples=25)
def test_equals_the_definition(case: Case):
    x = random(case.num, case.channels, *case.sizes)
    layer, bottom, top = convolution(case.text, x)
    weights, bias = (blob.cpu_data() for blob in layer.blobs)
    expected = convolve(x, weights, case) + bias.reshape(-1, *[1] * len(case.sizes))
    (y,) = forward(layer, bottom, top)
    assert y.shape == (case.num, case.num_output, *case.convolved())
    np.testing.assert_allclose(y, expected, atol=1e-12)


@given(cases())
@settings(max_examples=25)
def test_gradient_is_the_transpose(case: Case):
    """y is linear in x and in W, so <dy, y> = <dx, x> = <dW, W> without bias."""
    x = random(case.num, case.channels, *case.sizes)
    layer, bottom, top = convolution(case.text + " bias_term: false", x)
    (y,) = forward(layer, bottom, top)
    dy = np.random.default_rng(6).standard_normal(y.shape)
    (dx,) = backward(layer, bottom, top, dy)
    product = (y * dy).sum()
    assert (x * dx).sum() == pytest.approx(product, abs=1e-9)
    weights = layer.blobs[0]
    assert (weights.cpu_data() * weights.cpu_diff()).sum() == pytest.approx(product, abs=1e-9)


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        ("num_output: 4 kernel_size: 3 stride: 2 pad: 1 group: 2", (2, 4, 5, 6)),
        ("num_output: 2 kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad_h: 1 pad_w: 2", (2, 3, 5, 4)),
        ("num_output: 3 kernel_size: 1", (1, 2, 3, 3)),
        ("num_output: 3 kernel_size: 1", (12, 2, 3, 3)),
        ("num_output: 2 kernel_size: 2 dilation: 2", (12, 3, 4, 4)),
        ("num_output: 2 kernel_size: 3 kernel_size: 1 kernel_size: 2 pad: 1", (2, 2, 3, 1, 3)),
        ("num_output: 2 kernel_size: 2 axis: 2", (2, 3, 2, 4, 4)),
        ("num_output: 3 axis: -1", (2, 3, 4)),
        ("num_output: 3 kernel_size: 6 stride: 2", (1, 2, 5, 5)),
    ],
)
def test_gradient(fields: str, shape: tuple[int, ...]):
    check_gradient(f'type: "Convolution" convolution_param {{ {fields} {FILL} }}', random(*shape))


def test_axis_folds_what_stands_before_it_into_the_batch():
    x = random(2, 3, 2, 5, 4)
    layer, bottom, top = convolution("num_output: 4 kernel_size: 2 axis: 2", x)
    flat, flat_bottom, flat_top = convolution("num_output: 4 kernel_size: 2", x.reshape(6, 2, 5, 4))
    np.testing.assert_allclose(
        forward(layer, bottom, top)[0].reshape(6, 4, 4, 3), forward(flat, flat_bottom, flat_top)[0]
    )


def test_chunks_of_images_change_nothing():
    """A batch of several chunks, the last one a single image, equals its images one by one."""
    x = random(65, 2, 8, 8)
    layer, bottom, top = convolution("num_output: 3 kernel_size: 5", x)
    assert len(layer.columns.chunks) == 3
    (y,) = forward(layer, bottom, top)
    dy = random(*y.shape)
    (dx,) = backward(layer, bottom, top, dy)
    one, one_bottom, one_top = convolution("num_output: 3 kernel_size: 5", x[:1])
    for i in range(len(x)):
        one_bottom[0].data[...] = x[i]
        np.testing.assert_allclose(forward(one, one_bottom, one_top)[0][0], y[i], atol=1e-12)
        np.testing.assert_allclose(backward(one, one_bottom, one_top, dy[i : i + 1])[0][0], dx[i], atol=1e-12)
    for whole, summed in zip(layer.blobs, one.blobs, strict=True):
        np.testing.assert_allclose(whole.cpu_diff(), summed.cpu_diff(), atol=1e-10)


def test_several_bottoms_share_the_weights():
    x = [random(2, 3, 4, 4), random(2, 3, 4, 4) + 1]
    layer, bottom, top = convolution("num_output: 2 kernel_size: 3", *x)
    y = forward(layer, bottom, top)
    both, both_bottom, both_top = convolution("num_output: 2 kernel_size: 3", np.concatenate(x))
    np.testing.assert_allclose(np.concatenate(y), forward(both, both_bottom, both_top)[0])
    dx = backward(layer, bottom, top, *y)
    np.testing.assert_allclose(
        np.concatenate(dx), backward(both, both_bottom, both_top, np.concatenate(y))[0]
    )
    for blob, expected in zip(layer.blobs, both.blobs, strict=True):
        np.testing.assert_allclose(blob.cpu_diff(), expected.cpu_diff())


def test_batch_of_none_gives_no_gradient():
    layer, bottom, top = convolution("num_output: 2 kernel_size: 3", random(0, 3, 4, 4))
    (y,) = forward(layer, bottom, top)
    assert backward(layer, bottom, top, y)[0].shape == (0, 3, 4, 4)
    assert not any(blob.cpu_diff().any() for blob in layer.blobs)


def test_only_what_is_asked_for_is_computed():
    layer, bottom, top = convolution("num_output: 2 kernel_size: 3", random(2, 3, 4, 4))
    layer.param_propagate_down = [False, True]
    bottom[0].diff[...] = 7
    top[0].diff[...] = 1
    layer.forward(bottom, top)
    layer.backward(top, [False], bottom)
    assert (bottom[0].diff == 7).all()
    assert not layer.blobs[0].diff.any()
    np.testing.assert_array_equal(layer.blobs[1].diff, [8, 8])  # 2 images · 2 x 2 places


def test_parameter_diffs_accumulate():
    layer, bottom, top = convolution("num_output: 2 kernel_size: 3", random(2, 3, 4, 4))
    backward(layer, bottom, top, random(2, 2, 2, 2))
    once = [blob.cpu_diff().copy() for blob in layer.blobs]
    backward(layer, bottom, top, random(2, 2, 2, 2))
    for blob, diff in zip(layer.blobs, once, strict=True):
        np.testing.assert_allclose(blob.cpu_diff(), 2 * diff)


def test_reshape_to_another_size():
    layer, bottom, top = convolution("num_output: 2 kernel_size: 3", random(2, 3, 4, 4))
    bottom[0].reshape(5, 3, 6, 3)
    bottom[0].data[...] = random(5, 3, 6, 3)
    layer.reshape(bottom, top)
    case = Case(5, 3, 2, 1, (6, 3), (3, 3), (1, 1), (0, 0), (1, 1))
    expected = convolve(bottom[0].cpu_data(), layer.blobs[0].cpu_data(), case)
    expected += layer.blobs[1].cpu_data().reshape(-1, 1, 1)
    np.testing.assert_allclose(forward(layer, bottom, top)[0], expected)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("kernel_size: 2", r"num_output \(=0\) must be at least 1"),
        ("num_output: 4", r"kernel_size must be specified once, or once per spatial dimension \(kernel_size "
                          r"specified 0 times; 2 spatial dims\)"),
        ("num_output: 4 kernel_size: 1 kernel_size: 1 kernel_size: 1", "specified 3 times"),
        ("num_output: 4 kernel_size: 1 pad: 1 pad: 1 pad: 1", "pad must be specified once"),
        ("num_output: 4 kernel_size: 3 kernel_h: 3 kernel_w: 3", "Either kernel_size or kernel_h/w"),
        ("num_output: 4 kernel_size: 1 stride: 2 stride_w: 3", "Either stride or stride_h/w"),
        ("num_output: 4 kernel_size: 1 pad: 2 pad_h: 3", "Either pad or pad_h/w"),
        ("num_output: 4 kernel_h: 3", "Filter dimensions must be nonzero"),
        ("num_output: 4 kernel_size: 0", "Filter dimensions must be nonzero"),
        ("num_output: 4 kernel_size: 1 stride: 0", "Stride dimensions must be nonzero"),
        ("num_output: 4 kernel_size: 1 dilation: 0", "Dilation must be nonzero"),
        ("num_output: 4 kernel_size: 3 group: 2", r"channels \(=3\) must be divisible by group \(=2\)"),
        ("num_output: 4 kernel_size: 3 group: 3", r"num_output \(=4\) must be divisible by group \(=3\)"),
        ("num_output: 3 kernel_size: 3 group: 0", r"must be divisible by group \(=0\)"),
        ("num_output: 4 kernel_size: 3 axis: 4", r"axis \(=4\) must lie in \[-4, 4\)"),
        ("num_output: 4 kernel_size: 9", r"the top would have spatial shape \(-3, -4\)"),
        ('num_output: 4 kernel_size: 1 weight_filler { type: "none" }', "Unknown filler name: none"),
    ],
)  # fmt: skip
def test_refusals(fields: str, message: str):
    with pytest.raises(LayerError, match=message):
        build(f'type: "Convolution" convolution_param {{ {fields} }}', random(2, 3, 5, 4))


def test_kernel_h_in_3d_is_refused():
    with pytest.raises(LayerError, match="kernel_h & kernel_w can only be used for 2D convolution"):
        convolution("num_output: 4 kernel_h: 3 kernel_w: 3", random(1, 2, 3, 4, 5))


def test_bottoms_that_differ_are_refused():
    with pytest.raises(
        ShapeError, match=r"shape mismatch - bottom\[0\]: 2 3 5 4 \(120\) vs. bottom\[1\]: 2 3 5 5 \(150\)"
    ):
        convolution("num_output: 4 kernel_size: 2", random(2, 3, 5, 4), random(2, 3, 5, 5))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 4, 5, 5), "Input size incompatible with convolution kernel: 3 channels at first, now 4"),
        ((2, 3, 5, 5, 5), "bottom num_axes may not change"),
        ((2, 3, 1, 5), r"the top would have spatial shape \(-1, 3\)"),
    ],
)
def test_reshapes_that_are_refused(shape: tuple[int, ...], message: str):
    layer, bottom, top = convolution("num_output: 2 kernel_size: 3", random(2, 3, 5, 5))
    bottom[0].reshape(shape)
    with pytest.raises(ShapeError, match=message):
        layer.reshape(bottom, top)
