"""Layers whose tops cannot be their bottoms say so when the net is built."""

from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError
from layer_types.nets import net_of

CASES = {
    "Accuracy": 'bottom: "y"',
    "ArgMax": "",
    "BatchReindex": 'bottom: "y"',
    "Concat": 'bottom: "y"',
    "ContrastiveLoss": 'bottom: "x2" bottom: "y"',
    "Crop": 'bottom: "y" crop_param { axis: 0 }',
    "EuclideanLoss": 'bottom: "x2"',
    "Filter": 'bottom: "y"',
    "Flatten": "",
    "HingeLoss": 'bottom: "y"',
    "InfogainLoss": 'bottom: "y" bottom: "x2"',
    "MultinomialLogisticLoss": 'bottom: "y"',
    "Reduction": "",
    "Reshape": "reshape_param { shape { dim: -1 } }",
    "SigmoidCrossEntropyLoss": 'bottom: "x2"',
    "Slice": 'top: "z"',
    "SoftmaxWithLoss": 'bottom: "y"',
    "Split": 'top: "z"',
    "Tile": "tile_param { tiles: 2 }",
}


@pytest.mark.parametrize("type", CASES)
def test_it_is_refused(type):
    text = f'layer {{ name: "L" type: "{type}" bottom: "x" top: "x" {CASES[type]} }}'
    with pytest.raises(LayerError, match=f"{type} Layer does not allow in-place computation"):
        net_of(text, x=np.eye(2), x2=np.eye(2), y=[0, 1])


@pytest.mark.parametrize("type", ["Concat", "Slice"])
def test_where_nothing_is_moved_it_is_allowed(type):
    net = net_of(f'layer {{ name: "L" type: "{type}" bottom: "x" top: "x" }}', x=np.eye(2))
    net.forward()
    net.blobs["x"].diff[...] = 3
    net.backward()
    assert net.blobs["x"].data.tolist() == [[1, 0], [0, 1]]
    assert net.blobs["x"].diff.tolist() == [[3, 3], [3, 3]]
