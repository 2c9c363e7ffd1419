"""Convolution: each output is a weighted sum of the bottom's values under a sliding window."""

from __future__ import annotations

from collections.abc import Sequence

from ..blob import Blob
from ..layer_registry import register_layer
from ._convolution import BaseConvolution


@register_layer("Convolution")
class ConvolutionLayer(BaseConvolution):
    """y[n, k, o] = b[k] + Σ_c Σ_t W[k, c, t] · x[n, c, stride · o + dilation · t - pad], x being 0 outside.

    bottom[i]: (N…, C, *S), any real, all of one shape; *S is any number of spatial axes.
    top[i]: (N…, num_output, *O), O = (S + 2 pad - dilation · (kernel - 1) - 1) / stride + 1, rounded down.
    blobs: W (num_output, C / group, *kernel) and, with bias_term, b (num_output).

    convolution_param: num_output. kernel_size, stride (1), pad (0), dilation (1): once, or once per
    spatial axis; kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w for two spatial axes. group (1):
    channels and outputs fall into so many parts that do not see each other. bias_term (true). axis (1):
    the channels'; those before it are independent, those after it are spatial. weight_filler,
    bias_filler (constant 0). force_nd_im2col and engine change the way, not the result.

    Gradient: bottom' = the transposed convolution of top' with W; W' += Σ_n Σ_o top' · x under the
    window; b' += Σ top'. Raises LayerError for impossible parameters, ShapeError for bottoms that differ
    or are smaller than the window. Source: Caffe's Convolution.
    """

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return bottom

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        columns, weights = self.columns, self.weights()
        for source, target in zip(bottom, top, strict=True):
            x = source.cpu_data().reshape(self.bottom_shape)
            y = target.overwrite_cpu_data().reshape(self.top_shape)
            for part in columns.chunks:
                columns.multiply(weights, columns.unfold(x[part]), y[part])
            self.add_bias(y)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        columns, weights = self.columns, self.weights()
        dw = self.weights_diff() if self.param_propagate_down[0] else None
        for target, down, source in zip(top, propagate_down, bottom, strict=True):
            dy = target.cpu_diff().reshape(self.top_shape)
            self.backward_bias(dy)
            if dw is None and not down:
                continue
            x = source.cpu_data().reshape(self.bottom_shape)
            dx = source.overwrite_cpu_diff().reshape(self.bottom_shape) if down else None
            for part in columns.chunks:
                features = columns.matrix(dy[part])
                if dw is not None:
                    columns.add_product(features, columns.unfold(x[part]), dw)
                if dx is not None:
                    columns.fold(weights, features, dx[part])
