from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError
from layer_types import support


def naive(values, top_k):
    """Index and value of the top_k greatest, the larger index first among equals."""
    order = sorted(range(len(values)), key=lambda i: (values[i], i), reverse=True)[:top_k]
    return order, [values[i] for i in order]


def run(text, x):
    layer, bottom, top = support.build(f'type: "ArgMax" argmax_param {{ {text} }}', x)
    return support.forward(layer, bottom, top)[0]


@pytest.mark.parametrize("shape", [(3, 5), (4,), (2, 3, 4), (2, 3, 1, 2), (2, 1, 2, 2, 3), (0, 3)])
@pytest.mark.parametrize("top_k", [1, 3])
@pytest.mark.parametrize("out_max_val", [False, True])
@pytest.mark.parametrize("levels", [2, 1000])
def test_of_each_item(rng, shape, top_k, out_max_val, levels):
    x = rng.integers(0, levels, shape).astype(float)
    top_k = min(top_k, int(np.prod(shape[1:])))
    out = run(f"top_k: {top_k} out_max_val: {str(out_max_val).lower()}", x)
    assert out.shape == (shape[0], 1 + out_max_val, top_k) + (1,) * (len(shape) - 3)
    for n in range(shape[0]):
        indices, values = naive(x[n].ravel(), top_k)
        wanted = [indices, values] if out_max_val else [indices]
        assert out[n].reshape(-1, top_k).tolist() == wanted


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("top_k", [1, 2])
@pytest.mark.parametrize("out_max_val", [False, True])
@pytest.mark.parametrize("levels", [2, 1000])
def test_along_an_axis(rng, axis, top_k, out_max_val, levels):
    x = rng.integers(0, levels, (2, 3, 4)).astype(float)
    out = run(f"axis: {axis} top_k: {top_k} out_max_val: {str(out_max_val).lower()}", x)
    lines, outs = np.moveaxis(x, axis, -1), np.moveaxis(out, axis, -1)
    assert outs.shape == (*lines.shape[:-1], top_k)
    for place in np.ndindex(*lines.shape[:-1]):
        assert outs[place].tolist() == naive(lines[place], top_k)[out_max_val]


def test_infinities():
    assert run("top_k: 3", [[-np.inf, np.inf, 0, -np.inf]]).ravel().tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "text, message",
    [
        ("top_k: 0", "top k must not be less than 1"),
        ("top_k: 7", r"top_k \(=7\) must be less than or equal to the dimension of the flattened .* \(=6\)"),
        ("top_k: 3 axis: 1", r"top_k \(=3\) must be less than or equal to the dimension of the axis \(=2\)"),
        ("axis: 3", r"axis \(=3\) must lie in \[-3, 3\)"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(LayerError, match=message):
        run(text, np.zeros((4, 2, 3)))


def test_a_scalar_has_no_items():
    with pytest.raises(LayerError, match="at least one axis"):
        run("", 1.0)


def test_it_has_no_gradient_and_needs_none():
    layer, bottom, top = support.build('type: "ArgMax"', np.eye(2))
    layer.backward(top, [False], bottom)
    with pytest.raises(LayerError, match="this layer has no gradient"):
        layer.backward(top, [True], bottom)
