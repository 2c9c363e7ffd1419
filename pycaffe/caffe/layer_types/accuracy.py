"""Accuracy: how often the labelled class is among the k best scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer import Layer
from ..layer_registry import register_layer
from ._labels import LabelledScores, read_labels


@register_layer("Accuracy")
class AccuracyLayer(Layer):
    """top[0] = share of positions whose labelled class is right: at most top_k scores, its own included,
    are as great as its own.

    bottom[0]: (N, C, …) scores, any real; C is the size of `axis`. NaN never counts as right.
    bottom[1]: one label for each position outside `axis`, integers in [0, C).
    top[0]: () share in [0, 1]; 0 when all labels are ignored.
    top[1], optional: (C,) the share for each class by itself; 0 for a class without labels.

    accuracy_param.top_k (default 1), in [1, C]. A tie that may push the labelled class out of the k
    best is a miss.
    accuracy_param.axis (default 1, negative from the end).
    accuracy_param.ignore_label (default none): positions with this label count for nothing.

    No gradient. Raises LabelError for a label outside [0, C), ShapeError when labels and positions differ
    in number, LayerError for top_k outside [1, C]. Source: Caffe's accuracy_layer documentation.
    """

    exact_num_bottom = 2
    min_top = 1
    max_top = 2

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.accuracy_param
        self.top_k = param.top_k
        self.ignore_label = param.ignore_label if param.HasField("ignore_label") else None

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.refuse_in_place(bottom, top)
        axis = self.layer_param.accuracy_param.axis
        self._scores = LabelledScores(self, bottom[0], bottom[1], axis, "label")
        if not 1 <= self.top_k <= self._scores.classes:
            raise self.error(
                "top_k must be less than or equal to the number of classes, and at least 1: top_k is "
                f"{self.top_k}, there are {self._scores.classes} classes"
            )
        self.score_blocks = self._scores.blocks
        top[0].reshape(())
        if len(top) > 1:
            top[1].reshape((self._scores.classes,))

    def _read_labels(self, labels: Blob) -> tuple[np.ndarray, np.ndarray | None]:
        return read_labels(self, labels, self._scores.classes, self.ignore_label, "accuracy_param")

    def count_labels(self, labels: Blob) -> int:
        """Check the labels; how many are not ignored. For kernels, as score_blocks, top_k and ignore_label
        are."""
        classes, counted = self._read_labels(labels)
        return classes.size if counted is None else int(np.count_nonzero(counted))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layout, scores = self._scores, bottom[0].cpu_data()
        labels, counted = self._read_labels(bottom[1])
        labelled = scores.reshape(-1)[layout.index(labels)].reshape(layout.labels_shape)
        rivals = np.count_nonzero(scores.reshape(layout.view) >= labelled[:, None], axis=1).reshape(-1)
        right = (rivals <= self.top_k) & (rivals > 0)
        if counted is not None:
            right, labels = right[counted], labels[counted]
        top[0].overwrite_cpu_data()[...] = np.count_nonzero(right) / max(labels.size, 1)
        if len(top) > 1:
            hits = np.bincount(labels[right], minlength=layout.classes)
            present = np.bincount(labels, minlength=layout.classes)
            top[1].overwrite_cpu_data()[...] = hits / np.maximum(present, 1)
