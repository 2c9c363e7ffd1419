"""Reshape: the same numbers under another shape."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..blob import Blob
from ..errors import ShapeError
from ..layer import Layer
from ..layer_registry import register_layer


@register_layer("Reshape")
class ReshapeLayer(Layer):
    """top[0] = bottom[0] in another shape of the same count, without a copy.

    bottom[0]: any shape. top[0] shares its data and diff.
    reshape_param.shape: dimensions that replace the span of axes given below. 0 copies the bottom's
    dimension at that place of the span, -1 (once) takes what is left.
    reshape_param.axis (default 0): where the span begins; -1 is after the last axis.
    reshape_param.num_axes (default -1, to the end): how many axes the span has; 0 inserts axes.
    Gradient: the top's diff.
    Raises LayerError for a span outside the bottom, two -1, a 0 with no axis to copy, a dimension below
    -1, and in place; ShapeError when the counts differ. Source: Caffe's reshape_layer documentation.
    """

    exact_num_bottom = 1
    forward_does_nothing = True
    exact_num_top = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.reshape_param
        self._dims = list(param.shape.dim)
        if any(d < -1 for d in self._dims):
            raise self.error(f"shape must hold dimensions, 0 or -1, but is {self._dims}")
        if self._dims.count(-1) > 1:
            raise self.error(
                "new shape contains multiple -1 dims; at most a single (1) value of -1 may be specified: "
                f"{self._dims}"
            )
        if param.num_axes < -1:
            raise self.error(f"num_axes (={param.num_axes}) must be >= 0, or -1 for all axes to the end")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.refuse_in_place(bottom, top)
        top[0].reshape(self._top_shape(bottom[0].shape))
        top[0].share_data(bottom[0])
        top[0].share_diff(bottom[0])

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return ()

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        pass

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        pass

    def _top_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        start, end = self._span(shape)
        dims = list(self._dims)
        for i, dim in enumerate(dims):
            if dim == 0:
                if start + i >= len(shape):
                    raise self.error(
                        "new shape contains a 0, but there was no corresponding bottom axis to copy: shape "
                        f"is {self._dims}, the span begins at axis {start} of a bottom of shape {shape}"
                    )
                dims[i] = shape[start + i]
        if -1 in dims:
            dims[dims.index(-1)] = self._inferred(shape, start, end)
        new = (*shape[:start], *dims, *shape[end:])
        if math.prod(new) != math.prod(shape):
            raise self.error(
                f"output count must match input count: {new} has {math.prod(new)} elements, the bottom "
                f"{shape} {math.prod(shape)}",
                ShapeError,
            )
        return new

    def _span(self, shape: tuple[int, ...]) -> tuple[int, int]:
        param, n = self.layer_param.reshape_param, len(shape)
        start = param.axis if param.axis >= 0 else n + param.axis + 1
        if not 0 <= start <= n:
            raise self.error(
                f"axis (={param.axis}) must lie in [{-n - 1}, {n}] for a bottom of shape {shape}"
            )
        end = n if param.num_axes == -1 else start + param.num_axes
        if end > n:
            raise self.error(
                f"num_axes (={param.num_axes}) from axis {start} reaches past the last axis of a bottom of "
                f"shape {shape}"
            )
        return start, end

    def _inferred(self, shape: tuple[int, ...], start: int, end: int) -> int:
        """What -1 stands for. Axes copied within the span cancel, so that their size may be 0."""
        copied = {start + i for i, dim in enumerate(self._dims) if dim == 0}
        total = math.prod(shape[i] for i in range(start, end) if i not in copied)
        explicit = math.prod(d for d in self._dims if d > 0) * math.prod(shape[i] for i in copied if i >= end)
        if explicit == 0 or total % explicit:
            raise self.error(
                f"bottom count ({math.prod(shape)}) must be divisible by the product of the specified "
                f"dimensions: shape is {self._dims}, the bottom's {shape}",
                ShapeError,
            )
        return total // explicit
