"""BatchReindex: picks items of a batch by their numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..errors import ShapeError
from ..layer import Layer
from ..layer_registry import register_layer


@register_layer("BatchReindex")
class BatchReindexLayer(Layer):
    """top[0][m] = bottom[0][bottom[1][m]]: items picked, repeated, reordered or dropped.

    bottom[0]: (N, …). bottom[1]: (M,) item numbers, integers in [0, N). top[0]: (M, …). No parameters.
    Gradient of bottom[0]: each item gets the sum of the top's diffs at its copies. bottom[1] has none.
    Raises ShapeError for other axes, LayerError for a number outside [0, N).
    Source: Caffe's batch_reindex_layer documentation.
    """

    exact_num_bottom = 2
    exact_num_top = 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.refuse_in_place(bottom, top)
        if not bottom[0].shape or bottom[1].num_axes != 1:
            raise self.error(
                f"bottom[0] must be (N, …) and bottom[1] (M,), but their shapes are {bottom[0].shape} and "
                f"{bottom[1].shape}",
                ShapeError,
            )
        top[0].reshape((bottom[1].shape[0], *bottom[0].shape[1:]))

    def items(self, bottom: Sequence[Blob]) -> np.ndarray:
        numbers, count = bottom[1].cpu_data(), bottom[0].shape[0]
        outside = ~((numbers > -1) & (numbers < count))
        if outside.any():
            m = int(np.argmax(outside))
            raise self.error(
                f"bottom[1][{m}] (={numbers[m]:g}) must lie in [0, {count}), the items of bottom[0]"
            )
        return numbers.astype(np.intp)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        np.take(
            bottom[0].cpu_data(), self.items(bottom), axis=0, out=top[0].overwrite_cpu_data(), mode="clip"
        )

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[1]:
            raise self.error(
                "Cannot backprop to index: leave out force_backward, or set propagate_down: false for the "
                "second bottom"
            )
        if not propagate_down[0]:
            return
        diff, items = bottom[0].overwrite_cpu_diff(), self.items(bottom)
        diff.fill(0)
        # In turn the first copy of every item, the second of those that have one, and so on.
        order = np.argsort(items, kind="stable")
        ordered = items[order]
        copy = np.arange(items.size) - np.searchsorted(ordered, ordered)
        for k in range(int(copy.max(initial=-1)) + 1):
            places = order[copy == k]
            diff[items[places]] += top[0].cpu_diff()[places]
