"""Deconvolution: the transpose of Convolution, which spreads each value over a window of the top."""

from __future__ import annotations

from collections.abc import Sequence

from ..blob import Blob
from ..layer_registry import register_layer
from ._convolution import BaseConvolution


@register_layer("Deconvolution")
class DeconvolutionLayer(BaseConvolution):
    """y[n, k, stride · s + dilation · t - pad] = b[k] + Σ_c Σ_{s, t that meet there} W[c, k, t] · x[n, c, s].

    What Convolution's backward does to its top's diff: upsampling by stride, with W as the kernel.

    bottom[i]: (N…, C, *S), any real, all of one shape; *S is any number of spatial axes.
    top[i]: (N…, num_output, *O), O = stride · (S - 1) + dilation · (kernel - 1) + 1 - 2 pad.
    blobs: W (C, num_output / group, *kernel) and, with bias_term, b (num_output).

    convolution_param: as Convolution's. A weight_filler of type "bilinear" interpolates.

    Gradient: bottom' = the convolution of top' with W; W' += Σ_n Σ_s x · top' under the window;
    b' += Σ top'. Raises LayerError for impossible parameters, ShapeError for bottoms that differ or a
    top that padding leaves empty. Source: Caffe's Deconvolution; Long et al., CVPR 2015.
    """

    transposed = True

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return bottom

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        columns, weights = self.columns, self.weights()
        for source, target in zip(bottom, top, strict=True):
            x = source.cpu_data().reshape(self.bottom_shape)
            y = target.overwrite_cpu_data().reshape(self.top_shape)
            for part in columns.chunks:
                columns.fold(weights, columns.matrix(x[part]), y[part])
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
                unfolded = columns.unfold(dy[part])
                if dw is not None:
                    columns.add_product(columns.matrix(x[part]), unfolded, dw)
                if dx is not None:
                    columns.multiply(weights, unfolded, dx[part])
