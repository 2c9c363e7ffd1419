"""InnerProduct: every output is a weighted sum of all inputs of its item."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..errors import ShapeError
from ..layer import Layer
from ..layer_registry import register_layer


@register_layer("InnerProduct")
class InnerProductLayer(Layer):
    """y = x · Wᵀ + b.

    bottom[0]: (M…, K…), any real: the axes before `axis` count items, those from it on are one item's K
    inputs. top[0]: (M…, num_output).
    blobs: W (num_output, K), or (K, num_output) with transpose, and with bias_term b (num_output).

    inner_product_param: num_output; bias_term (true); axis (1), negative from the end; transpose (false);
    weight_filler, bias_filler (constant 0).

    Gradient: x' = y' · W; W' += y'ᵀ · x; b' += Σ_m y'. Raises LayerError for impossible parameters,
    ShapeError when K changes. Source: Caffe's InnerProduct.
    """

    exact_num_bottom = 1
    exact_num_top = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.refuse_in_place(bottom, top)
        param = self.layer_param.inner_product_param
        self.num_output, self.bias_term, self.transpose = param.num_output, param.bias_term, param.transpose
        if self.num_output < 1:
            raise self.error(f"num_output (={self.num_output}) must be at least 1")
        self.axis = self.canonical_axis(param.axis, bottom[0])
        self.inputs = bottom[0].axis_count(self.axis)
        shape = (self.num_output, self.inputs)
        self.add_parameter(shape[::-1] if self.transpose else shape, param.weight_filler)
        if self.bias_term:
            self.add_parameter((self.num_output,), param.bias_filler)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        items, inputs = bottom[0].shape[: self.axis], bottom[0].axis_count(self.axis)
        if inputs != self.inputs or bottom[0].num_axes <= self.axis:
            raise self.error(
                f"Input size incompatible with inner product parameters: {self.inputs} inputs at first, "
                f"now {inputs} from axis {self.axis} on in shape {bottom[0].shape}",
                ShapeError,
            )
        top[0].reshape(*items, self.num_output)
        self.bottom_shape = (math.prod(items), self.inputs)
        self.top_shape = (math.prod(items), self.num_output)

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return bottom

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0].cpu_data().reshape(self.bottom_shape)
        y = top[0].overwrite_cpu_data().reshape(self.top_shape)
        weights = self.blobs[0].cpu_data()
        np.matmul(x, weights if self.transpose else weights.T, out=y)
        if self.bias_term:
            y += self.blobs[1].cpu_data()

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        dy = top[0].cpu_diff().reshape(self.top_shape)
        if self.param_propagate_down[0]:
            x = bottom[0].cpu_data().reshape(self.bottom_shape)
            diff = self.blobs[0].mutable_cpu_diff()
            product = self.run.scratch("weights_diff", diff.shape, diff.dtype)
            diff += np.matmul(x.T, dy, out=product) if self.transpose else np.matmul(dy.T, x, out=product)
        if self.bias_term and self.param_propagate_down[1]:
            self.blobs[1].mutable_cpu_diff()[...] += dy.sum(axis=0)
        if propagate_down[0]:
            weights = self.blobs[0].cpu_data()
            dx = bottom[0].overwrite_cpu_diff().reshape(self.bottom_shape)
            np.matmul(dy, weights.T if self.transpose else weights, out=dx)
