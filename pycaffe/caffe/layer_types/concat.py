"""Concat: joins blobs along one axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..errors import ShapeError
from ..layer import Layer
from ..layer_registry import register_layer


@register_layer("Concat")
class ConcatLayer(Layer):
    """top[0] = the bottoms one after the other along `axis`.

    Bottoms: at least one, of equal shape but for `axis`. top[0]: their shape, with the sum of their
    sizes along `axis`. A single bottom shares its memory with the top.
    concat_param.axis (default 1, negative from the end), or the older concat_dim (default 1, not
    negative); not both.
    Gradient: each bottom's part of the top's diff.
    Raises LayerError for an axis outside, ShapeError for shapes that do not fit.
    Source: Caffe's concat_layer documentation.
    """

    min_bottom = 1
    exact_num_top = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.concat_param
        if param.HasField("axis") and param.HasField("concat_dim"):
            raise self.error("Either axis or concat_dim should be specified; not both.")
        self._field = "concat_dim" if param.HasField("concat_dim") else "axis"

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if len(bottom) > 1:
            self.refuse_in_place(bottom, top)
        first = bottom[0].shape
        axis = self.canonical_axis(
            getattr(self.layer_param.concat_param, self._field), bottom[0], self._field
        )
        for i, blob in enumerate(bottom):
            if blob.num_axes != len(first) or any(
                a != b for j, (a, b) in enumerate(zip(blob.shape, first, strict=True)) if j != axis
            ):
                raise self.error(
                    f"All inputs must have the same shape, except at concat_axis (={axis}): bottom[0] has "
                    f"shape {first}, bottom[{i}] {blob.shape}",
                    ShapeError,
                )
        sizes = [blob.shape[axis] for blob in bottom]
        top[0].reshape((*first[:axis], sum(sizes), *first[axis + 1 :]))
        self._axis = axis
        ends = np.cumsum(sizes)
        self._parts = [
            (*[slice(None)] * axis, slice(int(end) - size, int(end)))
            for end, size in zip(ends, sizes, strict=True)
        ]
        if len(bottom) == 1:
            top[0].share_data(bottom[0])
            top[0].share_diff(bottom[0])

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return ()

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if len(bottom) > 1:
            np.concatenate([blob.cpu_data() for blob in bottom], self._axis, out=top[0].overwrite_cpu_data())

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if len(bottom) == 1:
            return
        diff = top[0].cpu_diff()
        for blob, part, wanted in zip(bottom, self._parts, propagate_down, strict=True):
            if wanted:
                blob.overwrite_cpu_diff()[...] = diff[part]
