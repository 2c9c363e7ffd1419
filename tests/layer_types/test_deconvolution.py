"""Deconvolution against its definition in loops, its gradient, and its refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings

from caffe.errors import LayerError, ShapeError
from caffe.gradient_check import check_gradient
from layer_types.support import backward, build, forward
from layer_types.windows import Case, cases, deconvolve

FILL = 'weight_filler { type: "gaussian" } bias_filler { type: "gaussian" }'


def deconvolution(fields: str, *bottoms: np.ndarray):
    text = f'type: "Deconvolution" convolution_param {{ {fields} {FILL} }}'
    return build(text, *bottoms, tops=len(bottoms))


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape)


@given(cases())
@settings(max_examples=25)
def test_equals_the_definition(case: Case):
    assume(min(case.deconvolved()) > 0)
    x = random(case.num, case.channels, *case.sizes)
    layer, bottom, top = deconvolution(case.text, x)
    weights, bias = (blob.cpu_data() for blob in layer.blobs)
    expected = deconvolve(x, weights, case) + bias.reshape(-1, *[1] * len(case.sizes))
    (y,) = forward(layer, bottom, top)
    assert y.shape == (case.num, case.num_output, *case.deconvolved())
    np.testing.assert_allclose(y, expected, atol=1e-12)


@given(cases())
@settings(max_examples=25)
def test_gradient_is_the_transpose(case: Case):
    """y is linear in x and in W, so <dy, y> = <dx, x> = <dW, W> without bias."""
    assume(min(case.deconvolved()) > 0)
    x = random(case.num, case.channels, *case.sizes)
    layer, bottom, top = deconvolution(case.text + " bias_term: false", x)
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
        ("num_output: 4 kernel_size: 3 stride: 2 pad: 1 group: 2", (2, 4, 3, 2)),
        ("num_output: 2 kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad_h: 1 pad_w: 0", (2, 3, 2, 4)),
        ("num_output: 3 kernel_size: 1", (12, 2, 3, 3)),
        ("num_output: 2 kernel_size: 2 dilation: 2", (12, 3, 2, 2)),
        ("num_output: 2 kernel_size: 3 kernel_size: 1 kernel_size: 2", (2, 2, 2, 1, 2)),
        ("num_output: 3 axis: -1", (2, 3, 4)),
    ],
)
def test_gradient(fields: str, shape: tuple[int, ...]):
    check_gradient(f'type: "Deconvolution" convolution_param {{ {fields} {FILL} }}', random(*shape))


def test_bilinear_weights_interpolate():
    """Twice the size: inside, a straight line stays a straight line."""
    line = np.arange(5.0)[None, None, None, :] * np.ones((1, 2, 5, 1))
    fields = "num_output: 2 group: 2 bias_term: false kernel_size: 4 stride: 2 pad: 1"
    fields += ' weight_filler { type: "bilinear" }'
    layer, bottom, top = build(f'type: "Deconvolution" convolution_param {{ {fields} }}', line)
    (y,) = forward(layer, bottom, top)
    assert y.shape == (1, 2, 10, 10)
    np.testing.assert_allclose(y[0, 1, 1:-1, 1:-1], np.tile(np.arange(1, 9) / 2 - 0.25, (8, 1)))


def test_chunks_of_images_change_nothing():
    x = random(65, 3, 2, 2)
    layer, bottom, top = deconvolution("num_output: 2 kernel_size: 2 stride: 2", x)
    assert len(layer.columns.chunks) == 3
    (y,) = forward(layer, bottom, top)
    (dx,) = backward(layer, bottom, top, y)
    case = Case(65, 3, 2, 1, (2, 2), (2, 2), (2, 2), (0, 0), (1, 1))
    bias = layer.blobs[1].cpu_data().reshape(-1, 1, 1)
    np.testing.assert_allclose(y, deconvolve(x, layer.blobs[0].cpu_data(), case) + bias)
    one, one_bottom, one_top = deconvolution("num_output: 2 kernel_size: 2 stride: 2", x[:1])
    for i in range(len(x)):
        one_bottom[0].data[...] = x[i]
        np.testing.assert_allclose(backward(one, one_bottom, one_top, y[i : i + 1])[0][0], dx[i])
    for whole, summed in zip(layer.blobs, one.blobs, strict=True):
        np.testing.assert_allclose(whole.cpu_diff(), summed.cpu_diff(), atol=1e-10)


def test_batch_of_none_gives_no_gradient():
    layer, bottom, top = deconvolution("num_output: 2 kernel_size: 3", random(0, 3, 4, 4))
    (y,) = forward(layer, bottom, top)
    assert backward(layer, bottom, top, y)[0].shape == (0, 3, 4, 4)
    assert not any(blob.cpu_diff().any() for blob in layer.blobs)


def test_only_what_is_asked_for_is_computed():
    layer, bottom, top = deconvolution("num_output: 2 kernel_size: 3", random(2, 3, 2, 2))
    layer.param_propagate_down = [True, False]
    bottom[0].diff[...] = 7
    top[0].diff[...] = 1
    layer.forward(bottom, top)
    layer.backward(top, [False], bottom)
    assert (bottom[0].diff == 7).all()
    assert layer.blobs[0].diff.any()
    assert not layer.blobs[1].diff.any()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("kernel_size: 2", r"num_output \(=0\) must be at least 1"),
        ("num_output: 4", r"kernel_size specified 0 times; 2 spatial dims"),
        ("num_output: 4 kernel_size: 3 group: 2", r"channels \(=3\) must be divisible by group \(=2\)"),
        ("num_output: 4 kernel_size: 3 group: 3", r"num_output \(=4\) must be divisible by group \(=3\)"),
        ("num_output: 4 kernel_size: 1 pad: 2", r"the top would have spatial shape \(1, 0\)"),
    ],
)
def test_refusals(fields: str, message: str):
    with pytest.raises(LayerError, match=message):
        deconvolution(fields, random(2, 3, 5, 4))


def test_bottoms_that_differ_are_refused():
    with pytest.raises(ShapeError, match=r"shape mismatch - bottom\[0\]"):
        deconvolution("num_output: 4 kernel_size: 2", random(2, 3, 5, 4), random(2, 3, 5, 5))
