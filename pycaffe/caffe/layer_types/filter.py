"""Filter: keeps the items that a selector marks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..errors import ShapeError
from ..layer import Layer
from ..layer_registry import register_layer


@register_layer("Filter")
class FilterLayer(Layer):
    """top[i] = the items n of bottom[i] whose selector[n] is not 0.

    Bottoms: one or more to filter, (N, …), then the selector, (N,) or (N, 1, …). Tops: one per filtered
    bottom, (M, …) with M items kept, 0 perhaps. At set-up, when the selector has no values yet, M = N.
    No parameters.
    Gradient: the top's diff at the items kept, 0 at others; the selector has none.
    Raises ShapeError when the numbers of items differ or the selector has other axes.
    Source: Caffe's filter_layer documentation.
    """

    min_bottom = 2
    min_top = 1
    reshape_every_pass = True  # the number of items kept depends on values

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if len(top) != len(bottom) - 1:
            raise self.error(
                "there must be one top for each bottom but the selector: "
                f"{len(top)} tops, {len(bottom)} bottoms"
            )
        self._first = True

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.refuse_in_place(bottom, top)
        *filtered, selector = bottom
        if not selector.shape or selector.axis_count(1) != 1:
            raise self.error(
                "Selector blob dimensions must be singletons (1), except the first: the last bottom has "
                f"shape {selector.shape}",
                ShapeError,
            )
        for i, blob in enumerate(filtered):
            if blob.shape[:1] != selector.shape[:1]:
                raise self.error(
                    "Each bottom should have the same 0th dimension as the selector blob: "
                    f"bottom[{i}] has shape {blob.shape}, the selector {selector.shape}",
                    ShapeError,
                )
        self.kept = np.flatnonzero(selector.cpu_data())
        if self._first and not self.kept.size:
            self.kept = np.arange(selector.shape[0])
        self._first = False
        for blob, source in zip(top, filtered, strict=True):
            blob.reshape((self.kept.size, *source.shape[1:]))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for blob, source in zip(top, bottom, strict=False):
            np.take(source.cpu_data(), self.kept, axis=0, out=blob.overwrite_cpu_data(), mode="clip")

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[-1]:
            raise self.error(
                "FilterLayer cannot backpropagate to filter index inputs: leave out force_backward, or set "
                "propagate_down: false for the selector"
            )
        for blob, source, wanted in zip(top, bottom, propagate_down, strict=False):
            if wanted:
                diff = source.overwrite_cpu_diff()
                diff.fill(0)
                diff[self.kept] = blob.cpu_diff()
