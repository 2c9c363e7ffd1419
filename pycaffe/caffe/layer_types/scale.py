"""Scale: a factor for each channel, row or element, learned or given; and a bias."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..errors import ShapeError
from ..layer import Layer
from ..layer_registry import register_layer
from ..proto import caffe_pb2
from ._blocks import block_sum, block_total, operand_blocks, operand_shape
from ._neuron import in_place, memory


@register_layer("Scale")
class ScaleLayer(Layer):
    """y = scale · x + bias, scale and bias laid over axes of x from axis on and repeated over the rest.

    bottom[0]: any shape, any real. bottom[1], if given: the scale, of the shape that it covers; else
    blobs[0] is the scale and learned. top[0]: shape of bottom[0]; may be bottom[0], of which a copy is
    then kept.
    scale_param: axis (default 1; negative counts from the end): the first axis covered. num_axes
        (default 1; -1 all the rest, 0 a single factor): how many; unused with bottom[1]. filler (default
        constant 1) of the scale. bias_term (default false): add a learned bias of the same shape, the
        last of the blobs; bias_filler (default constant 0).
    Gradient: of x, scale · dy; of the scale, Σ x · dy; of the bias, Σ dy, over what each was repeated on.
    Raises ShapeError for a scale that does not fit bottom[0].
    """

    min_bottom = 1
    max_bottom = 2
    exact_num_top = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.scale_param
        self.axis, self.bias_term = param.axis, param.bias_term
        self.kept: np.ndarray | None = None
        if len(bottom) == 2:
            shape = bottom[1].shape
        else:
            shape = operand_shape(self, bottom[0], param.axis, param.num_axes, "scale")
            filler = param.filler if param.HasField("filler") else caffe_pb2.FillerParameter(value=1)
            self.add_parameter(shape, filler)
        if self.bias_term:
            self.add_parameter(shape, param.bias_filler)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        shape = self._scale(bottom).shape
        self.blocks = operand_blocks(self, bottom[0], shape, self.axis, "scale")
        if self.bias_term and self.blobs[-1].shape != shape:
            raise self.error(
                f"the bias of shape {self.blobs[-1].shape} does not fit a scale of shape {shape}", ShapeError
            )
        top[0].reshape_like(bottom[0])
        self.kept = memory(self.kept, bottom[0].shape, bottom[0].dtype) if in_place(bottom, top) else None

    def _scale(self, bottom: Sequence[Blob]) -> Blob:
        return bottom[1] if len(bottom) == 2 else self.blobs[0]

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return bottom if self.kept is None else bottom[1:]

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0].cpu_data()
        if self.kept is not None and (len(bottom) == 2 or self.param_propagate_down[0]):
            np.copyto(self.kept, x)
        y = top[0].overwrite_cpu_data().reshape(self.blocks)
        np.multiply(x.reshape(self.blocks), self._scale(bottom).cpu_data().reshape(-1, 1), out=y)
        if self.bias_term:
            y += self.blobs[-1].cpu_data().reshape(-1, 1)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        dy, scale = top[0].cpu_diff().reshape(self.blocks), self._scale(bottom)
        if self.bias_term and self.param_propagate_down[-1]:
            bias_diff = self.blobs[-1].mutable_cpu_diff()
            bias_diff += block_total(dy).reshape(scale.shape)
        learned = len(bottom) == 1
        if self.param_propagate_down[0] if learned else propagate_down[1]:
            x = bottom[0].cpu_data() if self.kept is None else self.kept
            gradient = block_sum(dy, x.reshape(self.blocks)).reshape(scale.shape)
            if learned:
                scale_diff = scale.mutable_cpu_diff()
                scale_diff += gradient
            else:
                scale.overwrite_cpu_diff()[...] = gradient
        if propagate_down[0]:
            dx = bottom[0].overwrite_cpu_diff().reshape(self.blocks)
            np.multiply(dy, scale.cpu_data().reshape(-1, 1), out=dx)
