"""Reduction: sums, sums of absolute values or squares, and means over the last axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer import Layer
from ..layer_registry import register_layer
from ..proto import caffe_pb2

_Op = caffe_pb2.ReductionParameter


@register_layer("Reduction")
class ReductionLayer(Layer):
    """top[0] = coeff · Σ x, Σ |x|, Σ x² or mean x, over all axes from `axis` on.

    bottom[0]: x, any shape with that axis, any real. top[0]: its axes before `axis`; () for axis 0.
    reduction_param.operation: SUM (default), ASUM, SUMSQ or MEAN.
    reduction_param.axis (default 0, negative from the end): first axis that is reduced.
    reduction_param.coeff (default 1): scales the result.
    Gradient: coeff · diff times 1, sign(x), 2x or 1/D, D numbers going into one; 0 at x = 0 for ASUM.
    The mean of no numbers is 0. Raises LayerError for an axis outside.
    Source: Caffe's reduction_layer documentation.
    """

    exact_num_bottom = 1
    exact_num_top = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._operation = self.layer_param.reduction_param.operation

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.refuse_in_place(bottom, top)
        param = self.layer_param.reduction_param
        axis = self.canonical_axis(param.axis, bottom[0])
        self._view = (bottom[0].axis_count(0, axis), bottom[0].axis_count(axis))
        self._coeff = param.coeff / max(self._view[1], 1) if param.operation == _Op.MEAN else param.coeff
        top[0].reshape(bottom[0].shape[:axis])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.reduce(bottom[0].cpu_data().reshape(self._view), top[0].overwrite_cpu_data().reshape(-1))

    def reduce(self, x: np.ndarray, out: np.ndarray) -> None:
        """From x, (rows, numbers of a row), write out, (rows,)."""
        if self._operation == _Op.SUMSQ:
            np.einsum("nd,nd->n", x, x, out=out)
        else:
            np.add.reduce(np.abs(x) if self._operation == _Op.ASUM else x, axis=1, out=out)
        if self._coeff != 1:
            out *= self._coeff

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0]:
            diff = bottom[0].overwrite_cpu_diff().reshape(self._view)
            self.spread(top[0].cpu_diff(), bottom[0].cpu_data().reshape(self._view), diff)

    def spread(self, top_diff: np.ndarray, x: np.ndarray, diff: np.ndarray) -> None:
        """The gradient of `reduce`: write diff, shaped like x."""
        scale = (top_diff.reshape(-1) * self._coeff)[:, None]
        if self._operation == _Op.SUMSQ:
            np.multiply(x, 2 * scale, out=diff)
        elif self._operation == _Op.ASUM:
            np.sign(x, out=diff)
            diff *= scale
        else:
            diff[...] = scale
