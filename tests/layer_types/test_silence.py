from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError
from layer_types import support
from layer_types.nets import net_of


def test_backward_clears_the_diffs_asked_for_and_no_data():
    layer, bottom, top = support.build('type: "Silence"', np.ones((2, 3)), np.ones(4), np.ones(()), tops=0)
    support.forward(layer, bottom, top)
    for blob in bottom:
        blob.diff[...] = 7
    layer.backward(top, [True, False, True], bottom)
    assert [float(blob.diff.sum()) for blob in bottom] == [0, 28, 0]
    assert all((blob.data == 1).all() for blob in bottom)


def test_its_bottoms_are_no_outputs():
    net = net_of('layer { name: "L" type: "Silence" bottom: "x" }', x=[1.0], y=[2.0])
    assert list(net.outputs) == ["y"]
    assert list(net.forward()) == ["y"]


def test_it_has_no_top():
    with pytest.raises(LayerError, match="Silence Layer takes 0 top"):
        net_of('layer { name: "L" type: "Silence" bottom: "x" top: "t" }', x=[1.0])
