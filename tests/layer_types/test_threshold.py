from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError
from layer_types import support
from layer_types.neuron import SHAPES, spread

TEXT = 'type: "Threshold" threshold_param {{ threshold: {} }}'


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("threshold", [0, 0.5, -1.25])
@pytest.mark.parametrize("shape", [*SHAPES, ()])
def test_formula(shape, threshold, in_place):
    x = spread(-2, 2)[: int(np.prod(shape))].reshape(shape)
    layer, bottom, top = support.build(TEXT.format(threshold), x, in_place=in_place)
    np.testing.assert_array_equal(support.forward(layer, bottom, top)[0], np.where(x > threshold, 1.0, 0.0))


def test_at_the_threshold_it_is_zero():
    layer, bottom, top = support.build(TEXT.format(1), [1.0, np.nextafter(1, 2), np.nan])
    assert support.forward(layer, bottom, top)[0].tolist() == [0, 1, 0]


def test_threshold_defaults_to_zero():
    layer, bottom, top = support.build('type: "Threshold"', [1e-9, -1e-9])
    assert support.forward(layer, bottom, top)[0].tolist() == [1, 0]


def test_it_has_no_gradient():
    layer, bottom, top = support.build(TEXT.format(0), [1.0])
    with pytest.raises(LayerError, match="layer 'L' \\(Threshold\\): this layer has no gradient"):
        support.backward(layer, bottom, top, [1.0])
