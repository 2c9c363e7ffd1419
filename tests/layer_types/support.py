"""Build one layer by itself, as a net would, for tests of its mathematics."""

from __future__ import annotations

import numpy as np
from google.protobuf import text_format

import caffe.layer_types  # noqa: F401  (registers the built-in types)
from caffe.blob import Blob
from caffe.execution import ExecutionContext
from caffe.layer import Layer
from caffe.layer_registry import create_layer
from caffe.proto import caffe_pb2


def build(
    text: str,
    *bottoms: np.ndarray,
    tops: int = 1,
    dtype: type = np.float64,
    phase: int = caffe_pb2.TRAIN,
    seed: int = 1,
    in_place: bool = False,
) -> tuple[Layer, list[Blob], list[Blob]]:
    """Layer from the inside of a `layer { }` block, with these bottoms, set up and reshaped.

    dtype is that of the blobs; parameters are created in float32 and widened to it.
    in_place: the only top is the first bottom.
    """
    param = caffe_pb2.LayerParameter(name="L", phase=phase)
    text_format.Merge(text, param)
    bottom = [Blob(np.shape(x), dtype) for x in bottoms]
    for blob, x in zip(bottom, bottoms, strict=True):
        blob.data[...] = x
    top = bottom[:1] if in_place else [Blob((), dtype) for _ in range(tops)]
    layer = create_layer(param)
    layer.run = ExecutionContext((seed, 0))
    layer.setup(bottom, top)
    for i, blob in enumerate(layer.blobs):
        wide = Blob(blob.shape, dtype)
        wide.data[...] = blob.cpu_data()
        layer.blobs[i] = wide
    layer.param_propagate_down = [True] * len(layer.blobs)
    layer.loss_weights = list(param.loss_weight) or [
        1.0 if layer.is_loss and i == 0 else 0.0 for i in range(tops)
    ]
    layer.reshape(bottom, top)
    return layer, bottom, top


def forward(layer: Layer, bottom: list[Blob], top: list[Blob]) -> list[np.ndarray]:
    layer.forward(bottom, top)
    return [t.cpu_data().copy() for t in top]


def backward(layer: Layer, bottom: list[Blob], top: list[Blob], *top_diffs: np.ndarray) -> list[np.ndarray]:
    for blob, diff in zip(top, top_diffs, strict=False):
        blob.diff[...] = diff
    layer.backward(top, [layer.allow_force_backward(i) for i in range(len(bottom))], bottom)
    return [b.cpu_diff().copy() for b in bottom]
