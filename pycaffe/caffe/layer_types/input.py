"""Input: blobs that the user fills."""

from __future__ import annotations

from collections.abc import Sequence

from ..blob import Blob
from ..layer import Layer
from ..layer_registry import register_layer


@register_layer("Input")
class InputLayer(Layer):
    """top[i] = what the user writes into it (`net.blobs['data'].data[...] = x`); zeros at first.

    No bottoms; any number of tops, at least one.
    input_param.shape: none (the user reshapes the tops), one for all tops, or one per top.
    Shapes are set once, so that `net.blobs['data'].reshape(…)` lasts. No gradient.
    Raises LayerError for another number of shapes, ShapeError for a negative dimension.
    Source: Caffe's input_layer documentation.
    """

    exact_num_bottom = 0
    min_top = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        shapes = self.layer_param.input_param.shape
        if len(shapes) not in (0, 1, len(top)):
            raise self.error(
                f"Must specify 'shape' once, once per top blob, or not at all: {len(top)} tops vs. "
                f"{len(shapes)} shapes."
            )
        for i, blob in enumerate(top):
            if shapes:
                blob.reshape(shapes[i if len(shapes) > 1 else 0].dim)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        pass

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        pass

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        pass
