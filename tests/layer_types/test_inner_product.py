"""InnerProduct against sums in loops, its gradient, and its refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffe.errors import LayerError, ShapeError
from caffe.gradient_check import check_gradient
from layer_types.support import backward, build, forward


def text(fields: str) -> str:
    fill = 'weight_filler { type: "gaussian" } bias_filler { type: "gaussian" }'
    return f'type: "InnerProduct" inner_product_param {{ {fields} {fill} }}'


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape)


@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple),
    data=st.data(),
    num_output=st.integers(1, 3),
    transpose=st.booleans(),
    bias=st.booleans(),
)
@settings(max_examples=25)
def test_equals_the_definition(shape, data, num_output, transpose, bias):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    flags = f"transpose: {str(transpose).lower()} bias_term: {str(bias).lower()}"
    fields = f"num_output: {num_output} axis: {axis} {flags}"
    x = random(*shape)
    layer, bottom, top = build(text(fields), x)
    (y,) = forward(layer, bottom, top)
    assert y.shape == (*shape[: axis % len(shape)], num_output)
    weights = layer.blobs[0].cpu_data()
    assert len(layer.blobs) == 1 + bias
    flat = x.reshape(y.size // num_output, -1) if y.size else x.reshape(0, 1)
    expected = np.zeros((len(flat), num_output))
    for item, row in enumerate(flat):
        for k in range(num_output):
            expected[item, k] = sum(
                (weights[i, k] if transpose else weights[k, i]) * value for i, value in enumerate(row)
            )
            expected[item, k] += layer.blobs[1].cpu_data()[k] if bias else 0
    np.testing.assert_allclose(y.reshape(-1, num_output), expected, atol=1e-12)


@pytest.mark.parametrize(
    "fields",
    [
        "num_output: 3",
        "num_output: 3 transpose: true",
        "num_output: 1 axis: 0",
        "num_output: 2 axis: -1",
        "num_output: 3 axis: 2 transpose: true bias_term: false",
    ],
)
def test_gradient(fields: str):
    check_gradient(text(fields), random(2, 3, 2, 2))


def test_batch_of_none_gives_no_gradient():
    layer, bottom, top = build(text("num_output: 3"), random(0, 4))
    assert forward(layer, bottom, top)[0].shape == (0, 3)
    assert backward(layer, bottom, top)[0].shape == (0, 4)
    assert not any(blob.cpu_diff().any() for blob in layer.blobs)


def test_only_what_is_asked_for_is_computed():
    layer, bottom, top = build(text("num_output: 2"), random(3, 4))
    layer.param_propagate_down = [False, True]
    bottom[0].diff[...] = 7
    top[0].diff[...] = 1
    layer.forward(bottom, top)
    layer.backward(top, [False], bottom)
    assert (bottom[0].diff == 7).all()
    assert not layer.blobs[0].diff.any()
    np.testing.assert_array_equal(layer.blobs[1].diff, [3, 3])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("", r"num_output \(=0\) must be at least 1"),
        ("num_output: 2 axis: 4", r"axis \(=4\) must lie in \[-2, 2\)"),
        ('num_output: 2 weight_filler { type: "bilinear" }', "Blob must be 4 dim"),
    ],
)
def test_refusals(fields: str, message: str):
    with pytest.raises(LayerError, match=message):
        build(f'type: "InnerProduct" inner_product_param {{ {fields} }}', random(2, 3))


@pytest.mark.parametrize("shape", [(2, 5), (2,)])
def test_other_inputs_are_refused(shape: tuple[int, ...]):
    layer, bottom, top = build(text("num_output: 2"), random(2, 3))
    bottom[0].reshape(7, 3)
    layer.reshape(bottom, top)
    assert top[0].shape == (7, 2)
    bottom[0].reshape(shape)
    with pytest.raises(ShapeError, match="Input size incompatible with inner product parameters: 3 inputs"):
        layer.reshape(bottom, top)
