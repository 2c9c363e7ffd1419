from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError, ShapeError
from caffe.gradient_check import check_gradient
from layer_types import support

TEXT = 'type: "Scale" scale_param {{ {} }}'
# bottom, fields, shape of the scale, where NumPy has to put its axes to broadcast
CASES = [
    ((2, 3, 4, 5), "", (3,), (1, 3, 1, 1)),
    ((2, 3), "", (3,), (1, 3)),
    ((2, 3, 4), "axis: 0", (2,), (2, 1, 1)),
    ((2, 3, 4), "axis: -1", (4,), (1, 1, 4)),
    ((2, 3, 4), "axis: 0 num_axes: -1", (2, 3, 4), (2, 3, 4)),
    ((2, 3, 4), "axis: 1 num_axes: 2", (3, 4), (1, 3, 4)),
    ((2, 3, 4), "axis: -3 num_axes: 2", (2, 3), (2, 3, 1)),
    ((2, 3, 4), "num_axes: 0", (), (1, 1, 1)),
    ((4,), "num_axes: 0", (), (1,)),
    ((0, 3, 2), "", (3,), (1, 3, 1)),
]


def repeated(shape, like):
    """Axes over which an operand of this broadcast shape is repeated."""
    return tuple(i for i, (a, b) in enumerate(zip(shape, like, strict=True)) if a == 1 and b != 1)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize(("shape", "fields", "scale_shape", "wide"), CASES)
def test_against_broadcasting(shape, fields, scale_shape, wide, given, bias, in_place, rng):
    x, dy = rng.standard_normal(shape), rng.standard_normal(shape)
    scale, offset = rng.standard_normal(scale_shape), rng.standard_normal(scale_shape)
    text = TEXT.format(fields + " bias_term: " + str(bias).lower())
    bottoms = (x, scale) if given else (x,)
    layer, bottom, top = support.build(text, *bottoms, in_place=in_place)
    assert [b.shape for b in layer.blobs] == [scale_shape] * (bias + (not given))
    if not given:
        layer.blobs[0].data[...] = scale
    if bias:
        layer.blobs[-1].data[...] = offset
    for blob in layer.blobs:
        blob.diff[...] = 10

    y = x * scale.reshape(wide) + (offset.reshape(wide) if bias else 0)
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], y)
    over = repeated(wide, shape)
    dscale = (dy * x).sum(over).reshape(scale_shape)
    dx, *rest = support.backward(layer, bottom, top, dy)
    np.testing.assert_allclose(dx, dy * scale.reshape(wide))
    np.testing.assert_allclose(rest[0] if given else layer.blobs[0].diff - 10, dscale, atol=1e-12)
    if bias:
        np.testing.assert_allclose(layer.blobs[-1].diff - 10, dy.sum(over).reshape(scale_shape), atol=1e-12)


@pytest.mark.parametrize("bias", ["", "bias_term: true"])
@pytest.mark.parametrize("fields", ["", "axis: 0", "axis: -1", "axis: 1 num_axes: 2", "num_axes: 0"])
def test_gradient(fields, bias, rng):
    check_gradient(
        TEXT.format(f'{fields} {bias} filler {{ type: "gaussian" std: 1 }}'), rng.standard_normal((2, 3, 4))
    )
    check_gradient(
        TEXT.format(f"axis: 1 {bias}"), rng.standard_normal((2, 3, 4)), rng.standard_normal((3, 4))
    )


def test_fillers_and_their_defaults():
    layer, _, _ = support.build(TEXT.format("bias_term: true"), np.ones((2, 3)))
    assert [b.data.tolist() for b in layer.blobs] == [[1] * 3, [0] * 3]
    fillers = "bias_term: true filler { value: 2 } bias_filler { value: 3 }"
    layer, _, _ = support.build(TEXT.format(fillers), np.ones((2, 3)))
    assert [b.data.tolist() for b in layer.blobs] == [[2] * 3, [3] * 3]


def test_frozen_parameters_and_unwanted_diffs_stay(rng):
    layer, bottom, top = support.build(TEXT.format("bias_term: true"), rng.standard_normal((2, 3)))
    layer.param_propagate_down = [False, False]
    support.forward(layer, bottom, top)
    top[0].diff[...] = 1
    bottom[0].diff[...] = 7
    layer.backward(top, [False], bottom)
    assert (bottom[0].diff == 7).all() and not any(b.diff.any() for b in layer.blobs)


@pytest.mark.parametrize(
    ("fields", "bottoms", "words"),
    [
        (
            "",
            [(2, 3), (4,)],
            r"dimension mismatch between bottom\[0\]->shape\(1\) and scale->shape\(0\): 3 against 4",
        ),
        ("", [(2, 3), (3, 1)], "scale blob's shape extends past bottom.*axis 1"),
        ("num_axes: 2", [(2, 3)], "scale blob's shape extends past bottom.*axis 1: num_axes is 2"),
        ("num_axes: -2", [(2, 3)], r"num_axes \(=-2\) must be non-negative, or -1"),
        ("axis: 2", [(2, 3)], r"axis \(=2\) must lie in \[-2, 2\)"),
    ],
)
def test_scales_that_do_not_fit_are_refused(fields, bottoms, words):
    with pytest.raises(LayerError, match=words):
        support.build(TEXT.format(fields), *map(np.ones, bottoms))


def test_change_of_channels_is_refused():
    layer, bottom, top = support.build(TEXT.format(""), np.ones((2, 3)))
    bottom[0].reshape(2, 4)
    with pytest.raises(ShapeError, match="dimension mismatch"):
        layer.reshape(bottom, top)
    layer, bottom, top = support.build(TEXT.format("bias_term: true"), np.ones((2, 3)), np.ones(3))
    bottom[0].reshape(2, 4)
    bottom[1].reshape(4)
    with pytest.raises(ShapeError, match="bias of shape"):
        layer.reshape(bottom, top)
