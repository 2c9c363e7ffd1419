from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import FillerError, LayerError
from layer_types import support
from layer_types.nets import net_of

TEXT = 'type: "DummyData" dummy_data_param {{ {} }}'


def run(text, tops=1):
    layer, bottom, top = support.build(TEXT.format(text), tops=tops)
    return support.forward(layer, bottom, top)


@pytest.mark.parametrize(
    "text, shapes, values",
    [
        ("shape { dim: 2 dim: 3 }", [(2, 3), (2, 3)], [0, 0]),
        ("shape { dim: 2 } shape { dim: 4 dim: 1 }", [(2,), (4, 1)], [0, 0]),
        ("shape { dim: 2 } data_filler { value: 4.5 }", [(2,), (2,)], [4.5, 4.5]),
        ("shape { } data_filler { value: 2 } data_filler { value: 3 }", [(), ()], [2, 3]),
        ("num: 2 channels: 3 height: 4 width: 5", [(2, 3, 4, 5)] * 2, [0, 0]),
        ("num: 2 num: 3 channels: 1 height: 4 width: 5 width: 2", [(2, 1, 4, 5), (3, 1, 4, 2)], [0, 0]),
        ("shape { dim: 0 }", [(0,), (0,)], [0, 0]),
    ],
)
def test_shapes_and_constants(text, shapes, values):
    for data, shape, value in zip(run(text, tops=2), shapes, values, strict=True):
        assert data.shape == shape
        assert (data == value).all()


def test_bilinear():
    [data] = run('shape { dim: 1 dim: 1 dim: 4 dim: 4 } data_filler { type: "bilinear" }')
    line = [0.25, 0.75, 0.75, 0.25]
    np.testing.assert_allclose(data[0, 0], np.outer(line, line))


GAUSSIAN = 'data_filler { type: "gaussian" std: 2 mean: 1 }'


def test_constants_stay_and_random_numbers_are_drawn_anew():
    net = net_of(
        f"""layer {{ name: "d" type: "DummyData" top: "a" top: "b" dummy_data_param {{
        shape {{ dim: 20000 }} data_filler {{ value: 3 }} {GAUSSIAN} }} }}"""
    )
    net.blobs["a"].data[0] = 7
    net.forward()
    first = net.blobs["b"].data.copy()
    net.forward()
    second = net.blobs["b"].data.copy()
    assert net.blobs["a"].data[:2].tolist() == [7, 3]
    assert not np.array_equal(first, second)
    # Four standard errors of mean and deviation of 20000 draws.
    for x in (first, second):
        assert abs(x.mean() - 1) < 4 * 2 / np.sqrt(20000)
        assert abs(x.std() - 2) < 4 * 2 / np.sqrt(2 * 20000)


def test_draws_depend_on_the_counters_alone():
    layer, bottom, top = support.build(TEXT.format(f"shape {{ dim: 5 }} {GAUSSIAN}"), seed=3)
    layer.run.iteration = 8
    eighth = support.forward(layer, bottom, top)[0]
    layer.run.iteration = 9
    assert not np.array_equal(support.forward(layer, bottom, top)[0], eighth)
    layer.run.iteration = 8
    np.testing.assert_array_equal(support.forward(layer, bottom, top)[0], eighth)


@pytest.mark.parametrize(
    "text, tops, message",
    [
        (
            "shape { } data_filler { } data_filler { }",
            1,
            "Number of data fillers must be 0, 1 or equal .*: 1; you",
        ),
        ("shape { } num: 1 channels: 1 height: 1 width: 1", 1, "Both shape and legacy fields were specified"),
        ("shape { } shape { }", 3, r"Must specify 'shape' once, or once per top blob \(3\); specified 2"),
        ("", 1, r"Must specify 'shape' once, or once per top blob \(1\); specified 0"),
        ("num: 1 channels: 1 height: 1", 1, "Must specify 'width' once"),
        ("num: 1 num: 2 num: 3 channels: 1 height: 1 width: 1", 2, "Must specify 'num' once"),
    ],
)
def test_what_is_refused(text, tops, message):
    with pytest.raises(LayerError, match=message):
        support.build(TEXT.format(text), tops=tops)


@pytest.mark.parametrize("filler", ["nonsense", "bilinear"])
def test_a_filler_that_cannot_fill_is_found_at_set_up(filler):
    with pytest.raises(FillerError, match="layer 'd'"):
        net_of(
            f"""layer {{ name: "d" type: "DummyData" top: "a"
            dummy_data_param {{ shape {{ dim: 2 }} data_filler {{ type: "{filler}" }} }} }}"""
        )
