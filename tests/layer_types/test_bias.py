from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError
from caffe.gradient_check import check_gradient
from layer_types import support

TEXT = 'type: "Bias" bias_param {{ {} }}'
# bottom, fields, shape of the bias, where NumPy has to put its axes to broadcast
CASES = [
    ((2, 3, 4, 5), "", (3,), (1, 3, 1, 1)),
    ((2, 3), "", (3,), (1, 3)),
    ((2, 3, 4), "axis: 0", (2,), (2, 1, 1)),
    ((2, 3, 4), "axis: -1", (4,), (1, 1, 4)),
    ((2, 3, 4), "axis: 0 num_axes: -1", (2, 3, 4), (2, 3, 4)),
    ((2, 3, 4), "axis: 1 num_axes: 2", (3, 4), (1, 3, 4)),
    ((4,), "num_axes: 0", (), (1,)),
    ((0, 3, 2), "", (3,), (1, 3, 1)),
]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize(("shape", "fields", "bias_shape", "wide"), CASES)
def test_against_broadcasting(shape, fields, bias_shape, wide, given, in_place, rng):
    x, dy, bias = rng.standard_normal(shape), rng.standard_normal(shape), rng.standard_normal(bias_shape)
    layer, bottom, top = support.build(
        TEXT.format(fields), *((x, bias) if given else (x,)), in_place=in_place
    )
    assert [b.shape for b in layer.blobs] == ([] if given else [bias_shape])
    for blob in layer.blobs:
        blob.data[...] = bias
        blob.diff[...] = 10
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], x + bias.reshape(wide))
    dx, *rest = support.backward(layer, bottom, top, dy)
    np.testing.assert_array_equal(dx, dy)
    over = tuple(i for i, (a, b) in enumerate(zip(wide, shape, strict=True)) if a == 1 and b != 1)
    dbias = rest[0] if given else layer.blobs[0].diff - 10
    np.testing.assert_allclose(dbias, dy.sum(over).reshape(bias_shape), atol=1e-12)


@pytest.mark.parametrize("fields", ["", "axis: 0", "axis: -1", "axis: 1 num_axes: 2", "num_axes: 0"])
def test_gradient(fields, rng):
    check_gradient(TEXT.format(fields), rng.standard_normal((2, 3, 4)))
    check_gradient(TEXT.format("axis: 1"), rng.standard_normal((2, 3, 4)), rng.standard_normal((3, 4)))


def test_filler_and_its_default():
    assert support.build(TEXT.format(""), np.ones((2, 3)))[0].blobs[0].data.tolist() == [0] * 3
    assert (
        support.build(TEXT.format("filler { value: 2 }"), np.ones((2, 3)))[0].blobs[0].data.tolist()
        == [2] * 3
    )


def test_frozen_parameters_and_unwanted_diffs_stay(rng):
    for bottoms in ([(2, 3)], [(2, 3), (3,)]):
        layer, bottom, top = support.build(TEXT.format(""), *map(np.ones, bottoms))
        layer.param_propagate_down = [False] * len(layer.blobs)
        support.forward(layer, bottom, top)
        top[0].diff[...] = 1
        for blob in bottom:
            blob.diff[...] = 7
        layer.backward(top, [False] * len(bottom), bottom)
        assert all((b.diff == 7).all() for b in bottom) and not any(b.diff.any() for b in layer.blobs)


@pytest.mark.parametrize(
    ("fields", "bottoms", "words"),
    [
        (
            "",
            [(2, 3), (4,)],
            r"dimension mismatch between bottom\[0\]->shape\(1\) and bias->shape\(0\): 3 against 4",
        ),
        ("", [(2, 3), (3, 1)], "bias blob's shape extends past bottom.*axis 1"),
        ("num_axes: 2", [(2, 3)], "bias blob's shape extends past bottom.*axis 1: num_axes is 2"),
        ("num_axes: -2", [(2, 3)], r"num_axes \(=-2\) must be non-negative, or -1"),
        ("axis: 2", [(2, 3)], r"axis \(=2\) must lie in \[-2, 2\)"),
    ],
)
def test_biases_that_do_not_fit_are_refused(fields, bottoms, words):
    with pytest.raises(LayerError, match=words):
        support.build(TEXT.format(fields), *map(np.ones, bottoms))
