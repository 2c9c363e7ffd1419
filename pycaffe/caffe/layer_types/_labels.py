"""Class labels: numbers in a blob, read as integers, and the scores that they belong to."""

from __future__ import annotations

import numpy as np

from ..blob import Blob
from ..errors import LabelError, LayerError, ShapeError
from ..layer import Layer


def read_labels(
    layer: Layer, blob: Blob, num_classes: int, ignore_label: int | None = None, ignore_message: str = ""
) -> tuple[np.ndarray, np.ndarray | None]:
    """(classes, counted) of a blob of labels, both flat.

    classes: integers in [0, num_classes), fractions cut off as the original does; 0 where a label is
    ignored. counted: which labels are not ignore_label, or None when there is no ignore_label.
    ignore_message: the prototxt message whose ignore_label would leave labels out, for the error's cure.
    Raises LabelError naming the first label outside the range, NaN included.
    """
    values = blob.cpu_data().reshape(-1)
    if ignore_label is None:
        # NaN fails both comparisons.
        if values.size and not (values.min() > -1 and values.max() < num_classes):
            outside = ~((values > -1) & (values < num_classes))
            raise _outside(layer, blob, outside, num_classes, ignore_message)
        return values.astype(np.intp), None
    whole = np.trunc(values)
    counted = whole != ignore_label
    outside = ~((whole >= 0) & (whole < num_classes)) & counted
    if outside.any():
        raise _outside(layer, blob, outside, num_classes, ignore_message)
    return np.where(counted, whole, 0).astype(np.intp), counted


def _outside(
    layer: Layer, blob: Blob, outside: np.ndarray, num_classes: int, ignore_message: str
) -> LayerError:
    first = int(np.flatnonzero(outside)[0])
    position = [int(i) for i in np.unravel_index(first, blob.shape)]
    value = float(blob.cpu_data().reshape(-1)[first])
    text = (
        f"the label at position {position} of bottom[1] (={value:g}) lies outside [0, {num_classes}), "
        "the classes of bottom[0]"
    )
    if ignore_message and value.is_integer():
        text += f"; `{ignore_message} {{ ignore_label: {value:g} }}` leaves such labels out"
    return layer.error(text, LabelError)


class LabelledScores:
    """Scores with `classes` numbers along an axis, and one label at each position of the other axes.

    view: the scores' shape as (O, C), or (O, C, I) when I is not 1: before, along and after the axis.
    blocks: (O, C, I). labels_shape: (O,) or (O, I). items: O. positions: O · I.
    Raises ShapeError unless there is one label per position and at least one class, LayerError for an
    axis outside.
    """

    def __init__(self, layer: Layer, scores: Blob, labels: Blob, axis: int, what: str):
        axis = layer.canonical_axis(axis, scores)
        outer, classes, inner = scores.axis_count(0, axis), scores.shape[axis], scores.axis_count(axis + 1)
        if outer * inner != labels.count:
            raise layer.error(
                f"Number of labels must match number of predictions; e.g., if {what} axis == 1 and "
                "prediction shape is (N, C, H, W), label count (number of labels) must be N*H*W, with "
                f"integer values in {{0, 1, ..., C-1}}. Here bottom[0] has shape {scores.shape}, axis is "
                f"{axis} and bottom[1] has shape {labels.shape}",
                ShapeError,
            )
        if not classes:
            raise layer.error(f"bottom[0] of shape {scores.shape} has no classes on axis {axis}", ShapeError)
        self.classes, self.items, self.positions = classes, outer, outer * inner
        self.labels_shape = (outer,) if inner == 1 else (outer, inner)
        self.view = (outer, classes, *self.labels_shape[1:])
        self.blocks = (outer, classes, inner)
        self._stride = inner
        self._first = (np.arange(outer)[:, None] * (classes * inner) + np.arange(inner)).reshape(-1)

    def index(self, classes: np.ndarray) -> np.ndarray:
        """Where in the flat scores each position's number for its class stands."""
        return self._first + classes * self._stride
