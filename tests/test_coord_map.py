"""Coordinate maps: by hand, and against where the layers really put a pixel."""

from __future__ import annotations

import numpy as np
import pytest

import caffe
from caffe import layers as L
from caffe.coord_map import (
    AxisMismatchException,
    CropError,
    UndefinedMapException,
    compose,
    coord_map,
    coord_map_from_to,
    crop,
    inverse,
)
from caffe.errors import CaffeError


def net(pad: int = 0, pool: int = 2, up: int = 2, up_pad: int = 0) -> caffe.NetSpec:
    n = caffe.NetSpec()
    n.data = L.Input(shape={"dim": [1, 1, 40, 40]})
    n.conv = L.Convolution(n.data, num_output=1, kernel_size=3, pad=pad)
    n.relu = L.ReLU(n.conv, in_place=True)
    n.pool = L.Pooling(n.relu, kernel_size=pool, stride=pool)
    n.up = L.Deconvolution(
        n.pool, convolution_param={"num_output": 1, "kernel_size": 2 * up, "stride": up, "pad": up_pad}
    )
    return n


def numbers(mapping) -> tuple[int, float, float]:
    axis, a, b = mapping
    (a,), (b,) = set(np.atleast_1d(a)), set(np.atleast_1d(b))
    return axis, float(a), float(b)


@pytest.mark.parametrize(
    ("top", "wanted"),
    [
        (lambda x: L.Convolution(x, kernel_size=5, stride=2, pad=1), (1, 0.5, -0.5)),
        (lambda x: L.Convolution(x, kernel_size=[3, 3], dilation=2), (1, 1, -2)),
        (lambda x: L.Convolution(x, kernel_h=3, kernel_w=3, stride_h=2, stride_w=2), (1, 0.5, -0.5)),
        (lambda x: L.Pooling(x, kernel_size=2, stride=2), (1, 0.5, -0.25)),
        (lambda x: L.Pooling(x, pooling_param={"kernel_size": 2, "stride": 2}), (1, 0.5, -0.25)),
        (lambda x: L.Deconvolution(x, kernel_size=4, stride=2, pad=1), (1, 2, 0.5)),
        (lambda x: L.Crop(x, x, axis=2, offset=7), (1, 1, -7)),
        (lambda x: L.Crop(x, x, crop_param={"offset": [7, 7]}), (1, 1, -7)),
        (lambda x: L.Softmax(x), (None, 1, 0)),
    ],
)
def test_the_map_of_one_layer(top, wanted: tuple) -> None:
    assert numbers(coord_map(top(net().data).fn)) == wanted


def test_maps_are_composed_and_inverted() -> None:
    first, second = (1, np.array([2.0]), np.array([3.0])), (None, 5, 7)
    assert numbers(compose(first, second)) == (1, 10, 17)
    assert numbers(compose(first, inverse(first))) == (1, 1, 0)
    with pytest.raises(AxisMismatchException, match="after 1 .*after 2"):
        compose(first, (2, 1, 0))


def test_between_tops() -> None:
    n = net()
    assert numbers(coord_map_from_to(n.up, n.data)) == (1, 1, 0)
    assert numbers(coord_map_from_to(n.data, n.up)) == (1, 1, 0)
    n = net(pool=4, up=4)
    assert numbers(coord_map_from_to(n.up, n.data)) == (1, 1, -1)
    padded = net(pad=2)
    assert numbers(coord_map_from_to(padded.up, padded.data)) == (1, 1, -2)


def test_each_axis_by_itself() -> None:
    n = caffe.NetSpec()
    n.data = L.Input(shape={"dim": [1, 1, 9, 9]})
    n.conv = L.Convolution(n.data, kernel_size=[3, 5], stride=[1, 2], pad=[0, 1])
    axis, a, b = coord_map_from_to(n.conv, n.data)
    assert (axis, a.tolist(), b.tolist()) == (1, [1, 2], [1, 1])


@pytest.mark.parametrize("pad", [0, 1, 8])
@pytest.mark.parametrize(("pool", "up"), [(2, 2), (4, 4)])
def test_crop_puts_pixels_back_where_they_were(pad: int, pool: int, up: int) -> None:
    """With bilinear interpolation upwards and a mean downwards, a smooth ramp comes back as it was."""
    n = caffe.NetSpec()
    n.data = L.Input(shape={"dim": [1, 1, 40, 40]})
    n.conv = L.Convolution(
        n.data, num_output=1, kernel_size=3, pad=pad, bias_term=False, weight_filler={"value": 1 / 9}
    )
    n.pool = L.Pooling(n.conv, pool="AVE", kernel_size=pool, stride=pool)
    n.up = L.Deconvolution(
        n.pool,
        num_output=1,
        kernel_size=2 * up,
        stride=up,
        bias_term=False,
        weight_filler={"type": "bilinear"},
    )
    try:
        n.score = crop(n.up, n.data)
    except CropError:
        # What was cut off in the beginning cannot come back.
        assert numbers(coord_map_from_to(n.up, n.data))[2] > 0
        return
    made = caffe.Net(n.to_proto(), caffe.TEST)
    ramp = np.add.outer(np.arange(40.0), 3 * np.arange(40.0))[None, None]
    score = made.forward(data=ramp)["score"]
    np.testing.assert_allclose(score[..., 12:26, 12:26], ramp[..., 12:26, 12:26], atol=1e-3)


def test_crop_writes_the_layer() -> None:
    n = net(pad=10)
    n.score = crop(n.up, n.data)
    layer = n.to_proto().layer[-1]
    assert (layer.type, list(layer.bottom)) == ("Crop", ["up", "data"])
    assert (layer.crop_param.axis, list(layer.crop_param.offset)) == (2, [10])


def test_crops_that_cannot_be() -> None:
    n = net()
    n.flat = L.InnerProduct(n.conv, num_output=2)
    with pytest.raises(RuntimeError, match="connected by spatial layers"):
        coord_map_from_to(n.flat, n.data)
    with pytest.raises(UndefinedMapException, match="InnerProduct"):
        coord_map(n.flat.fn)
    with pytest.raises(UndefinedMapException, match="global pooling"):
        coord_map(L.Pooling(n.data, global_pooling=True).fn)
    with pytest.raises(CaffeError, match="kernel_size must be given"):
        coord_map(L.Convolution(n.data).fn)
    for wrong, words in ((n.pool, "scale mismatch"), (net(up_pad=9).up, "negative offset")):
        with pytest.raises(AssertionError, match=words):
            crop(wrong, _data(wrong))
    with pytest.raises(CropError, match="noninteger"):
        crop(L.Convolution(n.data, kernel_size=2, pad=2), n.data)
    with pytest.raises(TypeError, match="takes tops of a NetSpec, not str"):
        crop("score", n.data)  # type: ignore[arg-type]
    with pytest.raises(CropError, match="nothing to crop"):
        crop(L.ReLU(n.data), n.data)


def _data(top):
    while top.fn.inputs:
        top = top.fn.inputs[0]
    return top
