"""Embed against one-hot products, its gradient, and its refusals."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffe.errors import LabelError, LayerError
from caffe.gradient_check import check_gradient
from layer_types.support import build, forward

TEXT = (
    'type: "Embed" embed_param { num_output: 3 input_dim: 5 '
    'weight_filler { type: "gaussian" } bias_filler { type: "gaussian" } }'
)


def indices(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 5, shape).astype(float)


@given(st.lists(st.integers(0, 4), max_size=3).map(tuple))
@settings(max_examples=25)
def test_equals_a_product_with_one_hot_inputs(shape: tuple[int, ...]):
    x = indices(shape)
    layer, bottom, top = build(TEXT, x)
    weights, bias = (blob.cpu_data() for blob in layer.blobs)
    one_hot = x.reshape(-1, 1) == np.arange(5)
    (y,) = forward(layer, bottom, top)
    assert y.shape == (*shape, 3)
    np.testing.assert_allclose(y.reshape(-1, 3), one_hot @ weights + bias)
    top[0].diff[...] = dy = np.random.default_rng(6).standard_normal(y.shape)
    layer.backward(top, [False], bottom)
    layer.backward(top, [False], bottom)
    np.testing.assert_allclose(layer.blobs[0].cpu_diff(), 2 * one_hot.T @ dy.reshape(-1, 3), atol=1e-12)
    np.testing.assert_allclose(layer.blobs[1].cpu_diff(), 2 * dy.reshape(-1, 3).sum(axis=0), atol=1e-12)


def test_gradient():
    check_gradient(TEXT, indices((3, 4)), check_bottom=())
    check_gradient(TEXT.replace("num_output", "bias_term: false num_output"), indices((7,)), check_bottom=())


def test_only_the_parameters_asked_for_get_a_diff():
    layer, bottom, top = build(TEXT, indices((4,)))
    layer.param_propagate_down = [False, True]
    top[0].diff[...] = 1
    layer.backward(top, [False], bottom)
    assert not layer.blobs[0].cpu_diff().any()
    np.testing.assert_array_equal(layer.blobs[1].cpu_diff(), [4, 4, 4])


@pytest.mark.parametrize("value", [5, -1, 1.5, np.nan, np.inf, 1e30])
def test_index_out_of_range_names_its_place(value: float):
    x = indices((2, 3))
    x[1, 2] = value
    layer, bottom, top = build(TEXT, x)
    message = f"index {value:g} at [1, 2] must be an integer in [0, input_dim), and input_dim is 5"
    with pytest.raises(LabelError, match=re.escape(message)):
        layer.forward(bottom, top)


def test_no_gradient_for_indices():
    layer, bottom, top = build(TEXT, indices((4,)))
    with pytest.raises(LayerError, match="Can't backpropagate to EmbedLayer input"):
        layer.backward(top, [True], bottom)


@pytest.mark.parametrize(
    ("fields", "message"),
    [("input_dim: 3", r"num_output \(=0\)"), ("num_output: 3", r"input_dim \(=0\)")],
)
def test_refusals(fields: str, message: str):
    with pytest.raises(LayerError, match=message):
        build(f'type: "Embed" embed_param {{ {fields} }}', indices((4,)))
