"""What loss layers have in common: their bottoms and top, what the sum is divided by, class scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..errors import ShapeError
from ..layer import Layer
from ..proto import caffe_pb2
from ._labels import LabelledScores, read_labels

_LossParameter = caffe_pb2.LossParameter


class LossLayer(Layer):
    """bottom[0]: (N, …) predictions, bottom[1]: (N, …) labels or targets; top[0]: () loss.

    The top's diff holds the loss weight, which scales the gradient.
    """

    exact_num_bottom = 2
    exact_num_top = 1
    is_loss = True
    auto_top_blobs = True

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.refuse_in_place(bottom, top)
        if not (bottom[0].shape and bottom[1].shape) or bottom[0].shape[0] != bottom[1].shape[0]:
            raise self.error(
                "The data and label should have the same first dimension: bottom[0] has shape "
                f"{bottom[0].shape}, bottom[1] {bottom[1].shape}",
                ShapeError,
            )
        top[0].reshape(())

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != 1

    def refuse_label_gradient(self, propagate_down: Sequence[bool]) -> None:
        """Raise when the gradient of the labels, bottom[1], is asked for."""
        if propagate_down[1]:
            raise self.error(
                f"{self.type} Layer cannot backpropagate to label inputs. Set `propagate_down: true "
                "propagate_down: false`, or stop learning the parameters that the labels come from"
            )


class Normalizer:
    """What a summed loss is divided by: `normalization` of loss_param, never less than 1.

    FULL: all predictions; VALID: those whose label is not ignored; BATCH_SIZE: items; NONE: 1.
    The older `normalize: true | false` means VALID | BATCH_SIZE.
    """

    def __init__(self, param: caffe_pb2.LossParameter, default: int = _LossParameter.VALID):
        self.mode = default
        if param.HasField("normalization"):
            self.mode = param.normalization
        elif param.HasField("normalize"):
            self.mode = _LossParameter.VALID if param.normalize else _LossParameter.BATCH_SIZE

    def __call__(self, items: int, predictions: int, counted: np.ndarray | None) -> float:
        """counted: which predictions are not ignored, or None for all."""
        if self.mode == _LossParameter.FULL:
            return max(predictions, 1)
        if self.mode == _LossParameter.VALID:
            return max(predictions if counted is None else int(np.count_nonzero(counted)), 1)
        return max(items, 1) if self.mode == _LossParameter.BATCH_SIZE else 1


class ItemClassLoss(LossLayer):
    """Losses over (N, D) numbers, with one class in [0, D) for each of the N items."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        num = bottom[0].shape[0]
        if bottom[1].count != num:
            raise self.error(
                f"there must be one label for each of the {num} items of bottom[0], but bottom[1] has shape "
                f"{bottom[1].shape}",
                ShapeError,
            )
        self._num, self._dim = num, bottom[0].axis_count(1)
        self._rows = np.arange(num) * self._dim
        self._index = self._rows

    def read_index(self, labels: Blob) -> np.ndarray:
        """Where in the flat bottom[0] each item's labelled element stands; kept as self._index."""
        self._index = self._rows + read_labels(self, labels, self._dim)[0]
        return self._index


class SoftmaxClassLoss(LossLayer):
    """Losses over the softmax p̂ of scores, with a class label at each position.

    bottom[0]: scores with C classes along `axis`; bottom[1]: one label per position outside it.
    top[1], if there: p̂. No gradient flows back from it.
    For kernels: score_blocks, (before, along, after the axis) of the scores; ignore_label, or None; and
    read_labels, after which divisor is what the summed loss is divided by.
    """

    exact_num_top = None
    min_top = 1
    max_top = 2

    def set_up_classes(self, axis: int, top: Sequence[Blob]) -> None:
        """Read what is common to these layers; axis: from the layer's own message."""
        param = self.layer_param.loss_param
        self._axis = axis
        self.ignore_label = param.ignore_label if param.HasField("ignore_label") else None
        self._normalizer = Normalizer(param)
        if len(top) > 1 and any(self.layer_param.loss_weight[1:]):
            raise self.error(
                "top[1] holds the probabilities and sends no gradient back, so that its loss_weight must be 0"
            )

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        self._scores = LabelledScores(self, bottom[0], bottom[1], self._axis, "softmax")
        self._prob = np.zeros(self._scores.view, bottom[0].dtype)
        self._labels = np.zeros(self._scores.positions, np.intp)
        self._counted: np.ndarray | None = None
        self.divisor = 1.0
        self.score_blocks = self._scores.blocks
        if len(top) > 1:
            top[1].reshape_like(bottom[0])

    def compute_probabilities(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Fill _prob (as _scores.view), what read_labels does, and top[1]."""
        layout, prob = self._scores, self._prob
        scores = bottom[0].cpu_data().reshape(layout.view)
        np.subtract(scores, np.maximum.reduce(scores, axis=1, keepdims=True), out=prob)
        np.exp(prob, out=prob)
        np.divide(prob, np.add.reduce(prob, axis=1, keepdims=True), out=prob)
        self.read_labels(bottom[1])
        if len(top) > 1:
            top[1].overwrite_cpu_data()[...] = prob.reshape(top[1].shape)

    def read_labels(self, labels: Blob) -> tuple[np.ndarray, np.ndarray | None]:
        """Check the labels; fill _labels and _counted (flat), which are returned, and divisor. Raises
        LabelError."""
        layout = self._scores
        self._labels, self._counted = read_labels(
            self, labels, layout.classes, self.ignore_label, "loss_param"
        )
        self.divisor = self._normalizer(layout.items, layout.positions, self._counted)
        return self._labels, self._counted

    def zero_ignored(self, values: np.ndarray) -> None:
        """Clear values, seen as _scores.view, at ignored positions."""
        if self._counted is not None:
            np.copyto(values, 0, where=~self._counted.reshape(self._scores.labels_shape)[:, None])
