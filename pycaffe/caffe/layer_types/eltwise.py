"""Eltwise: product, weighted sum or maximum of blobs, element by element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..errors import ShapeError
from ..layer import Layer
from ..layer_registry import register_layer
from ..proto import caffe_pb2

_Op = caffe_pb2.EltwiseParameter
_COMBINE = {_Op.SUM: np.add, _Op.PROD: np.multiply, _Op.MAX: np.maximum}


@register_layer("Eltwise")
class EltwiseLayer(Layer):
    """top[0] = Σ_i coeff_i · bottom[i], Π_i bottom[i] or max_i bottom[i], element by element.

    Bottoms: two or more of one shape, any real. top[0]: that shape.
    eltwise_param.operation: SUM (default), PROD or MAX.
    eltwise_param.coeff (default 1 each): one per bottom, for SUM only.
    eltwise_param.stable_prod_grad (default true), for PROD: multiply the other bottoms; false divides
    the top by the bottom, which is faster for many bottoms and breaks at zeros.

    Gradient of bottom[i]: SUM coeff_i · diff; PROD diff · Π_{j≠i} bottom[j]; MAX diff where bottom[i] is
    the greatest, else 0. Where bottom[0] and bottom[1] tie, bottom[1] has it; later bottoms have it only
    where they are greater than all before.
    Raises ShapeError for unequal shapes, LayerError for coefficients that do not fit.
    Source: Caffe's eltwise_layer documentation.
    """

    min_bottom = 2
    exact_num_top = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.eltwise_param
        self._operation, self._stable = param.operation, param.stable_prod_grad
        if param.coeff and self._operation != _Op.SUM:
            raise self.error("Eltwise layer only takes coefficients for summation.")
        if len(param.coeff) not in (0, len(bottom)):
            raise self.error(
                f"Eltwise Layer takes one coefficient per bottom blob: coeff holds {len(param.coeff)} for "
                f"{len(bottom)} bottoms"
            )
        self._coeff = list(param.coeff) or [1.0] * len(bottom)
        self._plain = all(c == 1 for c in self._coeff)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for i, blob in enumerate(bottom):
            if blob.shape != bottom[0].shape:
                raise self.error(
                    f"all bottoms must have one shape: bottom[0]: {bottom[0].shape_string}, bottom[{i}]: "
                    f"{blob.shape_string}",
                    ShapeError,
                )
        top[0].reshape_like(bottom[0])

    def in_place_refusal(self) -> str:
        if self._operation == _Op.SUM and self._plain:
            return ""
        return "its gradient needs the bottoms' values, or the top's diff after bottom[0]'s is written"

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return () if self._operation == _Op.SUM else (*bottom, *top)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        data, out = [blob.cpu_data() for blob in bottom], top[0].overwrite_cpu_data()
        if self._operation == _Op.SUM and not self._plain:
            term = self.run.scratch("eltwise", out.shape, out.dtype)
            np.multiply(data[0], self._coeff[0], out=out)
            for x, coeff in zip(data[1:], self._coeff[1:], strict=True):
                out += np.multiply(x, coeff, out=term)
            return
        combine = _COMBINE[self._operation]
        combine(data[0], data[1], out=out)
        for x in data[2:]:
            combine(out, x, out=out)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        diff = top[0].cpu_diff()
        wanted = [i for i, asked in enumerate(propagate_down) if asked]
        if self._operation == _Op.SUM:
            for i in wanted:
                if self._coeff[i] != 1:
                    np.multiply(diff, self._coeff[i], out=bottom[i].overwrite_cpu_diff())
                elif bottom[i] is not top[0]:
                    bottom[i].overwrite_cpu_diff()[...] = diff
        elif self._operation == _Op.PROD:
            data = [blob.cpu_data() for blob in bottom]
            for i in wanted:
                self._product_gradient(i, data, top[0].cpu_data(), diff, bottom[i].overwrite_cpu_diff())
        else:
            winner = _first_greatest([blob.cpu_data().reshape(-1) for blob in bottom]).reshape(diff.shape)
            for i in wanted:
                np.multiply(diff, winner == i, out=bottom[i].overwrite_cpu_diff())

    def _product_gradient(
        self, i: int, data: list[np.ndarray], product: np.ndarray, diff: np.ndarray, out: np.ndarray
    ) -> None:
        if not self._stable:
            with np.errstate(divide="ignore", invalid="ignore"):
                np.divide(product, data[i], out=out)
                out *= diff
            return
        out[...] = diff
        for j, other in enumerate(data):
            if j != i:
                out *= other


def _first_greatest(data: list[np.ndarray]) -> np.ndarray:
    """Which of these flat arrays has the maximum, element by element; see the class for ties."""
    winner = (~(data[0] > data[1])).astype(np.int32)
    best = data[0]
    for i, x in enumerate(data[2:], 2):
        best = np.maximum(best, data[i - 1])
        greater = x > best
        winner *= ~greater
        winner += np.multiply(greater, i, dtype=winner.dtype)
    return winner
