"""Where a nan comes from, in words. (The lines of debug_info are compared with the original's own log in
tests/tools/test_golden_logs.py.)"""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe import debug_info
from caffe.proto import caffe_pb2

NET = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer {
  name: "ip" type: "InnerProduct" bottom: "x" top: "y" param { name: "weights" }
  inner_product_param { num_output: 2 weight_filler { type: "constant" value: 1 } }
}
layer { name: "relu" type: "ReLU" bottom: "y" top: "y" }
layer { name: "log" type: "Log" bottom: "y" top: "z" }
"""


@pytest.fixture
def net() -> caffe.Net:
    return caffe.Net(text_format.Parse(NET, caffe_pb2.NetParameter()), caffe.TRAIN)


def test_nothing_to_tell(net):
    net.blobs["x"].data[...] = 1
    net.forward()
    assert debug_info.first_nonfinite(net) == ""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_first_layer_in_order_is_named(net):
    net.blobs["x"].data[...] = [[1, 1, 1], [-1, 0, 0]]
    net.forward()
    where = debug_info.first_nonfinite(net)
    assert where.startswith("layer 'log' (Log), top blob 'z': -inf at [1, 0] (2 of 4 numbers). ")
    assert "base_lr ten times smaller" in where


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_layers_that_work_in_place_are_named_too(net):
    net.blobs["x"].data[...] = 1
    net.params["ip"][1].data[1] = 3e38
    net.params["ip"][0].data[1] = 3e38
    net.forward()
    where = debug_info.first_nonfinite(net)
    assert where.startswith(
        "layer 'ip' (InnerProduct), top blob 'y', or in relu, which work on it in place: inf"
    )


def test_data_and_parameters_have_advice_of_their_own(net):
    net.params["ip"][0].data[1, 2] = np.nan
    where = debug_info.first_nonfinite(net)
    assert where.startswith("layer 'ip' (InnerProduct), parameter weights: nan at [1, 2] (1 of 6 numbers). ")
    assert "An earlier update made it so" in where
    net.blobs["x"].data[0, 1] = np.nan
    where = debug_info.first_nonfinite(net)
    assert where.startswith("layer 'in' (Input), top blob 'x': nan at [0, 1]")
    assert "look at the data" in where
