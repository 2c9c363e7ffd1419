"""Parameter: a learned blob that stands in the net like any other."""

from __future__ import annotations

from collections.abc import Sequence

from ..blob import Blob
from ..layer import Layer
from ..layer_registry import register_layer


@register_layer("Parameter")
class ParameterLayer(Layer):
    """top[0] = blobs[0], without a copy.

    No bottoms. top[0] and blobs[0]: parameter_param.shape (default: (), a scalar), zeros at first; they
    share data.
    Gradient of blobs[0]: the top's diff, added to what stands there, as with every parameter.
    Raises ShapeError for a negative dimension. Source: Caffe's parameter_layer documentation.
    """

    exact_num_bottom = 0
    exact_num_top = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.add_parameter(tuple(self.layer_param.parameter_param.shape.dim))

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape_like(self.blobs[0])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        # A net may let blobs[0] share another layer's parameter after set-up.
        if top[0].data_mem is not self.blobs[0].data_mem:
            top[0].share_data(self.blobs[0])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if self.param_propagate_down[0]:
            diff = self.blobs[0].mutable_cpu_diff()
            diff += top[0].cpu_diff()
