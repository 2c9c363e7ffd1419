"""Bias: a term for each channel, row or element, learned or given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer import Layer
from ..layer_registry import register_layer
from ._blocks import block_total, operand_blocks, operand_shape
from ._neuron import in_place


@register_layer("Bias")
class BiasLayer(Layer):
    """y = x + bias, the bias laid over axes of x from axis on and repeated over the rest.

    bottom[0]: any shape, any real. bottom[1], if given: the bias, of the shape that it covers; else
    blobs[0] is the bias and learned. top[0]: shape of bottom[0]; may be bottom[0].
    bias_param: axis (default 1; negative counts from the end): the first axis covered. num_axes
        (default 1; -1 all the rest, 0 a single term): how many; unused with bottom[1]. filler (default
        constant 0).
    Gradient: of x, dy; of the bias, Σ dy over what it was repeated on.
    Raises ShapeError for a bias that does not fit bottom[0].
    """

    min_bottom = 1
    max_bottom = 2
    exact_num_top = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.bias_param
        self.axis = param.axis
        if len(bottom) == 1:
            self.add_parameter(
                operand_shape(self, bottom[0], param.axis, param.num_axes, "bias"), param.filler
            )

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.blocks = operand_blocks(self, bottom[0], self._bias(bottom).shape, self.axis, "bias")
        top[0].reshape_like(bottom[0])

    def _bias(self, bottom: Sequence[Blob]) -> Blob:
        return bottom[1] if len(bottom) == 2 else self.blobs[0]

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return ()

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        y = top[0].overwrite_cpu_data().reshape(self.blocks)
        x = bottom[0].cpu_data().reshape(self.blocks)
        np.add(x, self._bias(bottom).cpu_data().reshape(-1, 1), out=y)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        dy, bias = top[0].cpu_diff(), self._bias(bottom)
        if len(bottom) == 2:
            if propagate_down[1]:
                bias.overwrite_cpu_diff()[...] = block_total(dy.reshape(self.blocks)).reshape(bias.shape)
        elif self.param_propagate_down[0]:
            bias_diff = bias.mutable_cpu_diff()
            bias_diff += block_total(dy.reshape(self.blocks)).reshape(bias.shape)
        if propagate_down[0] and not in_place(bottom, top):
            np.copyto(bottom[0].overwrite_cpu_diff(), dy)
