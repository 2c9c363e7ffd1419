"""Split: one blob for several readers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer import Layer
from ..layer_registry import register_layer


@register_layer("Split")
class SplitLayer(Layer):
    """top[i] = bottom[0], without a copy. Nets insert it where a blob has several readers.

    bottom[0]: any shape. Tops: at least one, of the same shape; they share bottom[0]'s data. No
    parameters. Gradient: the sum of the tops' diffs. Raises LayerError when a top is bottom[0].
    Source: Caffe's split_layer documentation.
    """

    exact_num_bottom = 1
    forward_does_nothing = True
    min_top = 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.refuse_in_place(bottom, top)
        for blob in top:
            blob.reshape_like(bottom[0])
            blob.share_data(bottom[0])

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return ()

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        pass

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not propagate_down[0]:
            return
        diff = bottom[0].overwrite_cpu_diff()
        if len(top) == 1:
            diff[...] = top[0].cpu_diff()
            return
        np.add(top[0].cpu_diff(), top[1].cpu_diff(), out=diff)
        for blob in top[2:]:
            diff += blob.cpu_diff()
