"""ArgMax: where the greatest values stand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer import Layer
from ..layer_registry import register_layer


@register_layer("ArgMax")
class ArgMaxLayer(Layer):
    """top[0] = indices, values or both of the top_k greatest numbers, greatest first.

    bottom[0]: (N, …), any real. Among equal numbers the larger index comes first.
    top[0] without `axis`: (N, 1, top_k, 1, …), as many axes as bottom[0] and at least three: indices into
    each item, flattened; with out_max_val (N, 2, top_k, 1, …): indices, then values.
    top[0] with `axis`: bottom[0]'s shape with top_k along `axis`: indices; with out_max_val values instead.

    argmax_param.axis (default none, negative from the end); argmax_param.top_k (default 1), from 1 to
    the number of candidates; argmax_param.out_max_val (default false).

    No gradient. Raises LayerError for top_k or axis outside. Source: Caffe's argmax_layer documentation.
    """

    exact_num_bottom = 1
    exact_num_top = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.argmax_param
        self._top_k, self._values = param.top_k, param.out_max_val
        self._by_axis = param.HasField("axis")
        if self._top_k < 1:
            raise self.error("top k must not be less than 1.")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.refuse_in_place(bottom, top)
        shape = bottom[0].shape
        if self._by_axis:
            axis = self.canonical_axis(self.layer_param.argmax_param.axis, bottom[0])
            self._view = (bottom[0].axis_count(0, axis), shape[axis], bottom[0].axis_count(axis + 1))
            what = f"dimension of the axis (={shape[axis]})"
            top_shape = [*shape[:axis], self._top_k, *shape[axis + 1 :]]
        else:
            if not shape:
                raise self.error("bottom[0] must have at least one axis")
            self._view = (shape[0], bottom[0].axis_count(1), 1)
            what = f"dimension of the flattened bottom blob per instance (={self._view[1]})"
            top_shape = [shape[0], 2 if self._values else 1, self._top_k, *[1] * (len(shape) - 3)]
        if self._top_k > self._view[1]:
            raise self.error(
                f"top_k (={self._top_k}) must be less than or equal to the {what}; the shape is {shape}"
            )
        top[0].reshape(top_shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        data, k = bottom[0].cpu_data().reshape(self._view), self._top_k
        # Turned round, since among equals argmax and a stable sort prefer what stands first.
        back = data[:, ::-1]
        if k == 1:
            places = back.argmax(axis=1)[:, None]
        else:
            places = _greatest(back, k)
        indices = self._view[1] - 1 - places  # (outer, k, inner)
        out = top[0].overwrite_cpu_data()
        if not self._values:
            out[...] = indices.reshape(out.shape)
            return
        values = np.take_along_axis(data, indices, axis=1)
        if self._by_axis:
            out[...] = values.reshape(out.shape)
        else:
            both = out.reshape(self._view[0], 2, k)
            both[:, 0], both[:, 1] = indices[..., 0], values[..., 0]


def _greatest(x: np.ndarray, k: int) -> np.ndarray:
    """Where along axis 1 the k greatest of x stand, greatest first, among equals the first first."""
    n = x.shape[1]
    places = np.sort(np.argpartition(x, n - k, axis=1)[:, n - k :], axis=1)
    values = np.take_along_axis(x, places, axis=1)
    least = values.min(axis=1, keepdims=True)
    if (np.count_nonzero(x >= least, axis=1) == k).all():
        return np.take_along_axis(places, np.argsort(-values, axis=1, kind="stable"), axis=1)
    # Equals (or NaN) at the border: partition takes any of them, a stable sort the first.
    return np.argsort(-x, axis=1, kind="stable")[:, :k]
