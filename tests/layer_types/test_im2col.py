"""Im2col against its definition in loops, and its gradient."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from caffe.errors import LayerError, ShapeError
from caffe.gradient_check import check_gradient
from layer_types.support import build, forward
from layer_types.windows import Case, cases


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape)


@given(cases())
@settings(max_examples=25)
def test_equals_the_definition(case: Case):
    x = random(case.num, case.channels, *case.sizes)
    expected = np.zeros((case.num, case.channels, *case.kernel, *case.convolved()))
    for place, tap, pixel in case.pairs(case.convolved(), case.sizes):
        for n, c in itertools.product(range(case.num), range(case.channels)):
            expected[(n, c, *tap, *place)] = x[(n, c, *pixel)]
    layer, bottom, top = build(f'type: "Im2col" convolution_param {{ {case.text} }}', x)
    (y,) = forward(layer, bottom, top)
    assert y.shape == (case.num, case.channels * np.prod(case.kernel), *case.convolved())
    np.testing.assert_array_equal(y, expected.reshape(y.shape))


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        ("kernel_size: 3 stride: 2 pad: 1", (2, 3, 5, 4)),
        ("kernel_size: 2 dilation: 2 dilation: 3", (1, 2, 4, 5)),
        ("kernel_size: 2 axis: -2", (2, 2, 2, 5)),
        ("kernel_size: 1 stride: 2", (40, 2, 3)),
        ("kernel_size: 2", (1, 2, 2, 3, 2)),
    ],
)
def test_gradient(fields: str, shape: tuple[int, ...]):
    check_gradient(f'type: "Im2col" convolution_param {{ {fields} }}', random(*shape))


def test_refusals():
    with pytest.raises(LayerError, match="kernel_size specified 0 times"):
        build('type: "Im2col" convolution_param { }', random(2, 3, 4, 4))
    with pytest.raises(ShapeError, match=r"spatial shape \(-1, -1\)"):
        build('type: "Im2col" convolution_param { kernel_size: 6 }', random(2, 3, 4, 4))
    layer, bottom, top = build('type: "Im2col" convolution_param { kernel_size: 2 }', random(2, 3, 4, 4))
    bottom[0].reshape(2, 3, 4)
    with pytest.raises(ShapeError, match="num_axes may not change"):
        layer.reshape(bottom, top)
