"""PReLU: a leaky rectifier that learns its slopes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..errors import ShapeError
from ..layer_registry import register_layer
from ..proto import caffe_pb2
from ._blocks import block_sum, channel_blocks
from ._neuron import NeuronLayer, in_place, memory


@register_layer("PReLU")
class PReLULayer(NeuronLayer):
    """y[n, c, …] = max(0, x) + a[c] · min(0, x).

    bottom[0]: (N, C, …), any real; any shape with channel_shared. top[0]: the same shape; may be the
    bottom, of which a copy is then kept.
    blobs[0]: the slopes a: (C,), or () with channel_shared.
    prelu_param: filler (default constant 0.25), channel_shared (default false: one slope per channel).
    Gradient: dy where x > 0, a[c] · dy elsewhere; of the slopes, Σ min(0, x) · dy.
    Raises ShapeError for fewer than 2 axes without channel_shared, or when C changes.
    Source: He et al., ICCV 2015.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.prelu_param
        self.channel_shared = param.channel_shared
        self.kept: np.ndarray | None = None
        if not self.channel_shared and bottom[0].num_axes < 2:
            raise self.error(
                f"Number of axes of bottom blob must be >=2, but its shape is {bottom[0].shape} "
                "(prelu_param.channel_shared: true takes any)",
                ShapeError,
            )
        filler = param.filler if param.HasField("filler") else caffe_pb2.FillerParameter(value=0.25)
        self.add_parameter(() if self.channel_shared else bottom[0].shape[1:2], filler)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        slopes = self.blobs[0].count
        self.blocks = (1, 1, bottom[0].count) if self.channel_shared else channel_blocks(bottom[0].shape)
        if self.blocks[1] != slopes:
            raise self.error(f"{slopes} slopes do not fit a bottom of shape {bottom[0].shape}", ShapeError)
        self.kept = memory(self.kept, bottom[0].shape, bottom[0].dtype) if in_place(bottom, top) else None

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, y = bottom[0].cpu_data(), top[0].overwrite_cpu_data()
        if self.kept is not None:
            np.copyto(self.kept, x)
        negative = np.minimum(x, 0, out=self.scratch(x))
        negative.reshape(self.blocks)[...] *= self.blobs[0].cpu_data().reshape(-1, 1)
        np.maximum(x, 0, out=y)
        y += negative

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        x = bottom[0].cpu_data() if self.kept is None else self.kept
        dy = top[0].cpu_diff()
        # What reaches the slopes: dy where x ≤ 0.
        less = np.multiply(dy, np.less_equal(x, 0, out=self.mask(x)), out=self.scratch(x)).reshape(
            self.blocks
        )
        slopes = self.blobs[0]
        if self.param_propagate_down[0]:
            diff = slopes.mutable_cpu_diff()
            diff += block_sum(less, x.reshape(self.blocks)).reshape(slopes.shape)
        if propagate_down[0]:
            less *= slopes.cpu_data().reshape(-1, 1) - 1
            np.add(dy, less.reshape(dy.shape), out=bottom[0].overwrite_cpu_diff())
