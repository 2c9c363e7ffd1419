from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError, ShapeError
from caffe.gradient_check import check_gradient
from caffe.proto import caffe_pb2
from layer_types import support

TEXT = 'type: "BatchNorm" batch_norm_param {{ {} }}'
TRAIN, TEST = caffe_pb2.TRAIN, caffe_pb2.TEST
SHAPES = [(7,), (6, 5), (3, 2, 5), (3, 4, 5, 2), (2, 3, 2, 2, 2), (1, 3), (4, 1, 3)]


def per_channel(x):
    """One row per channel."""
    return x.reshape(1, -1) if x.ndim < 2 else np.moveaxis(x, 1, 0).reshape(x.shape[1], -1)


def back(rows, shape):
    if len(shape) < 2:
        return rows.reshape(shape)
    return np.moveaxis(rows.reshape((shape[1], shape[0], *shape[2:])), 0, 1)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_training_against_rows_of_channels(shape, in_place, rng):
    x, dy, eps = 3 + 2 * rng.standard_normal(shape), rng.standard_normal(shape), 0.25
    layer, bottom, top = support.build(
        TEXT.format(f"eps: {eps} moving_average_fraction: 0.75"), x, in_place=in_place
    )
    for blob, value in zip(layer.blobs, (2, 3, 4), strict=True):
        blob.data[...] = value
    rows, drows = per_channel(x), per_channel(dy)
    m = rows.shape[1]
    mean, variance = rows.mean(1), rows.var(1)
    deviation = np.sqrt(variance + eps)[:, None]
    y = (rows - mean[:, None]) / deviation
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], back(y, shape), atol=1e-12)
    np.testing.assert_allclose(layer.blobs[0].data, 0.75 * 2 + mean)
    np.testing.assert_allclose(layer.blobs[1].data, 0.75 * 3 + variance * (m / (m - 1) if m > 1 else 1))
    np.testing.assert_allclose(layer.blobs[2].data, [0.75 * 4 + 1])

    top[0].data[...] = 99  # as a Scale layer that works in place on the top would leave it
    dx = (drows - drows.mean(1)[:, None] - y * (drows * y).mean(1)[:, None]) / deviation
    np.testing.assert_allclose(support.backward(layer, bottom, top, dy)[0], back(dx, shape), atol=1e-12)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_testing_uses_the_running_sums_and_leaves_them(shape, in_place, rng):
    x, dy = rng.standard_normal(shape), rng.standard_normal(shape)
    layer, bottom, top = support.build(TEXT.format("eps: 0.5"), x, phase=TEST, in_place=in_place)
    channels = layer.blobs[0].count
    mean, variance = rng.standard_normal(channels), rng.uniform(1, 2, channels)
    before = [4 * mean, 4 * variance, [4]]
    for blob, value in zip(layer.blobs, before, strict=True):
        blob.data[...] = value
    deviation = np.sqrt(variance + 0.5)[:, None]
    y = (per_channel(x) - mean[:, None]) / deviation
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], back(y, shape), atol=1e-12)
    for blob, value in zip(layer.blobs, before, strict=True):
        np.testing.assert_array_equal(blob.data, value)
    dx = back(per_channel(dy) / deviation, shape)
    np.testing.assert_allclose(support.backward(layer, bottom, top, dy)[0], dx)


@pytest.mark.parametrize(
    ("text", "phase", "running"),
    [
        ("", TRAIN, False),
        ("", TEST, True),
        ("use_global_stats: true", TRAIN, True),
        ("use_global_stats: false", TEST, False),
    ],
)
def test_phase_decides_unless_use_global_stats_does(text, phase, running, rng):
    layer, bottom, top = support.build(TEXT.format(text), rng.standard_normal((4, 2)), phase=phase)
    support.forward(layer, bottom, top)
    assert bool(layer.blobs[2].data[0] == 0) is running  # only the batch's statistics are added up


def test_running_sums_of_nothing_are_mean_0_and_variance_0():
    layer, bottom, top = support.build(TEXT.format("eps: 0.25"), [[3.0, 5.0]], phase=TEST)
    layer.blobs[0].data[...] = layer.blobs[1].data[...] = 7
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], [[6, 10]])


@pytest.mark.parametrize("shape", [(6,), (5, 4), (3, 2, 4)])
@pytest.mark.parametrize(
    ("text", "phase"), [("eps: 0.1", TRAIN), ("", TEST), ("use_global_stats: false", TEST)]
)
def test_gradient(shape, text, phase, rng):
    layer, _, _ = support.build(TEXT.format(text), np.ones(shape), phase=phase)
    for blob in layer.blobs:
        blob.data[...] = rng.uniform(1, 2, blob.shape)
    check_gradient(layer, rng.standard_normal(shape), phase=phase)


def test_statistics_are_not_learned():
    for specs in ("", "param { lr_mult: 0 }", "param { lr_mult: 0 } " * 3):
        layer, _, _ = support.build(TEXT.format("") + specs, np.ones((2, 3)))
        assert [s.lr_mult for s in layer.layer_param.param] == [0] * 3
    with pytest.raises(
        LayerError, match="Cannot configure batch normalization statistics as layer parameters"
    ):
        support.build(TEXT.format("") + "param { lr_mult: 0 } param { decay_mult: 0 }", np.ones((2, 3)))


def test_single_precision_far_from_zero(rng):
    x = (1000 + rng.standard_normal((64, 2, 50))).astype(np.float32)
    layer, bottom, top = support.build(TEXT.format(""), x, dtype=np.float32)
    rows = per_channel(x.astype(np.float64))
    y = (rows - rows.mean(1)[:, None]) / np.sqrt(rows.var(1) + 1e-5)[:, None]
    np.testing.assert_allclose(support.forward(layer, bottom, top)[0], back(y, x.shape), atol=1e-4)
    np.testing.assert_allclose(layer.blobs[1].data, rows.var(1, ddof=1), rtol=1e-5)


@pytest.mark.filterwarnings("error")
def test_empty_batch_changes_nothing():
    layer, bottom, top = support.build(TEXT.format(""), np.ones((0, 3, 2)))
    assert support.forward(layer, bottom, top)[0].shape == (0, 3, 2)
    assert support.backward(layer, bottom, top, np.ones((0, 3, 2)))[0].shape == (0, 3, 2)
    assert not any(blob.data.any() for blob in layer.blobs)


def test_change_of_channels_is_refused():
    layer, bottom, top = support.build(TEXT.format(""), np.ones((2, 3)))
    bottom[0].reshape(2, 4)
    with pytest.raises(ShapeError, match="statistics of 3 channels do not fit"):
        layer.reshape(bottom, top)
