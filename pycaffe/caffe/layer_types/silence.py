"""Silence: takes blobs that nobody reads, so that they are no outputs of the net."""

from __future__ import annotations

from collections.abc import Sequence

from ..blob import Blob
from ..layer import Layer
from ..layer_registry import register_layer


@register_layer("Silence")
class SilenceLayer(Layer):
    """No tops: the bottoms, any number and shapes, are read and dropped.

    No parameters. Gradient: 0. Source: Caffe's silence_layer documentation.
    """

    min_bottom = 1
    exact_num_top = 0
    forward_does_nothing = True

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        pass

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        pass

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        for blob, wanted in zip(bottom, propagate_down, strict=True):
            if wanted:
                blob.overwrite_cpu_diff().fill(0)
