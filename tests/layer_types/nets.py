"""Nets around a layer or two, for tests of what only a net shows."""

from __future__ import annotations

import numpy as np
from google.protobuf import text_format

import caffe
from caffe.proto import caffe_pb2


def net_of(
    layers: str, force_backward: bool = True, phase: int = caffe_pb2.TRAIN, **inputs: np.ndarray
) -> caffe.Net:
    """A net of these `layer { }` blocks behind Input layers that hold the inputs, by name."""
    param = caffe_pb2.NetParameter(force_backward=force_backward)
    for name, values in inputs.items():
        layer = param.layer.add(name=f"input_{name}", type="Input", top=[name])
        layer.input_param.shape.add(dim=np.shape(values))
    text_format.Merge(layers, param)
    net = caffe.Net(param, phase)
    for name, values in inputs.items():
        net.blobs[name].data[...] = values
    return net
