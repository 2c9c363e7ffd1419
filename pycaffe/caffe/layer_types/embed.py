"""Embed: looks up one row of the weights for each index; InnerProduct with one-hot inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..errors import LabelError
from ..layer import Layer
from ..layer_registry import register_layer


@register_layer("Embed")
class EmbedLayer(Layer):
    """y[i, :] = W[x[i], :] + b.

    bottom[0]: any shape, integers in [0, input_dim). top[0]: the bottom's shape with num_output appended.
    blobs: W (input_dim, num_output) and, with bias_term, b (num_output).

    embed_param: num_output; input_dim: how many indices there are; bias_term (true); weight_filler,
    bias_filler (constant 0).

    Gradient: W'[r] += Σ_{i: x[i] = r} y'[i]; b' += Σ y'; none for the bottom. Raises LayerError for
    impossible parameters, LabelError for an index that is no integer in [0, input_dim).
    Source: Caffe's Embed.
    """

    exact_num_bottom = 1
    exact_num_top = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.refuse_in_place(bottom, top)
        param = self.layer_param.embed_param
        self.num_output, self.input_dim, self.bias_term = param.num_output, param.input_dim, param.bias_term
        if self.num_output < 1:
            raise self.error(f"EmbedLayer num_output must be positive, but num_output (={self.num_output})")
        if self.input_dim < 1:
            raise self.error(f"EmbedLayer input_dim must be positive, but input_dim (={self.input_dim})")
        self.add_parameter((self.input_dim, self.num_output), param.weight_filler)
        if self.bias_term:
            self.add_parameter((self.num_output,), param.bias_filler)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape(*bottom[0].shape, self.num_output)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        y = top[0].overwrite_cpu_data().reshape(-1, self.num_output)
        # The mode matters only for speed: indices has checked the range.
        np.take(self.blobs[0].cpu_data(), self.indices(bottom[0]), axis=0, out=y, mode="clip")
        if self.bias_term:
            y += self.blobs[1].cpu_data()

    def indices(self, bottom: Blob) -> np.ndarray:
        values = bottom.cpu_data().reshape(-1)
        with np.errstate(invalid="ignore"):  # NaN and infinity become some integer, which they do not equal
            indices = values.astype(np.intp)
        wrong = (indices != values) | (indices < 0) | (indices >= self.input_dim)
        if wrong.any():
            first = int(wrong.argmax())
            place = [int(j) for j in np.unravel_index(first, bottom.shape)]
            raise self.error(
                f"index {values[first]:g} at {place} must be an integer in [0, input_dim), "
                f"and input_dim is {self.input_dim}",
                LabelError,
            )
        return indices

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0]:
            raise self.error(
                "Can't backpropagate to EmbedLayer input. Leave out force_backward, or set "
                "propagate_down: false where the indices come from"
            )
        dy = top[0].cpu_diff().reshape(-1, self.num_output)
        if self.param_propagate_down[0] and len(dy):
            # Rows of equal index side by side, each run summed at once.
            indices = self.indices(bottom[0])
            order = np.argsort(indices, kind="stable")
            rows, starts = np.unique(indices[order], return_index=True)
            self.blobs[0].mutable_cpu_diff()[rows] += np.add.reduceat(dy[order], starts, axis=0)
        if self.bias_term and self.param_propagate_down[1]:
            self.blobs[1].mutable_cpu_diff()[...] += dy.sum(axis=0)
