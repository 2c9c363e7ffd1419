"""Dropout: units left out at random in training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer_registry import register_layer
from ..proto import caffe_pb2
from ._neuron import NeuronLayer, in_place, memory

_UINT_MAX = 0xFFFFFFFF


@register_layer("Dropout")
class DropoutLayer(NeuronLayer):
    """TRAIN: y = x · kept / (1 - dropout_ratio), where kept is 0 with probability dropout_ratio, else 1.
    TEST: y = x.

    bottom[0]: any shape, any real. top[0]: the same shape; may be the bottom.
    dropout_param: dropout_ratio in [0, 1) (default 0.5; a share of units).
    Gradient: kept / (1 - dropout_ratio) · dy in TRAIN, dy in TEST.
    An element is kept when its 32 random bits exceed dropout_ratio · (2³² - 1); they depend on the
    net's seed, the layer's name, the iteration and the element only. Raises LayerError for other ratios.
    Source: Srivastava et al., JMLR 15 (2014).
    """

    keeps_signs = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        ratio = self.layer_param.dropout_param.dropout_ratio
        if not 0 <= ratio < 1:
            raise self.error(f"dropout_param.dropout_ratio (={ratio:g}) must lie in [0, 1)")
        self.drops = self.phase == caffe_pb2.TRAIN and ratio > 0
        self.scale = 1 / (1 - ratio)
        self.kept = np.empty(0, bool)
        self.threshold = np.uint32(_UINT_MAX * ratio)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        if self.drops:
            self.kept = memory(self.kept, bottom[0].shape, bool)
        self.forward_does_nothing = not self.drops and in_place(bottom, top)

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return ()

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self.drops:
            bits = self.run.bits32(self.name, bottom[0].count)
            np.greater(bits, self.threshold, out=self.kept.reshape(-1))
            self._apply(bottom[0].cpu_data(), top[0].overwrite_cpu_data())
        elif not in_place(bottom, top):
            np.copyto(top[0].overwrite_cpu_data(), bottom[0].cpu_data())

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not propagate_down[0]:
            return
        if self.drops:
            self._apply(top[0].cpu_diff(), bottom[0].overwrite_cpu_diff())
        elif not in_place(bottom, top):
            np.copyto(bottom[0].overwrite_cpu_diff(), top[0].cpu_diff())

    def _apply(self, source: np.ndarray, target: np.ndarray) -> None:
        np.multiply(source, self.kept, out=target)
        target *= self.scale
