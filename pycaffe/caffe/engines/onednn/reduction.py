"""Reduction over whole images of blobs in a layout of oneDNN's, whose numbers need no C order for that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from ...layer import Layer
from .base import OneDNNKernel
from .layouts import plain
from .place import PLACE


@kernel("Reduction", engine="onednn")
class ReductionKernel(OneDNNKernel):
    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        home = PLACE.home(bottom[0])
        axis = layer.layer_param.reduction_param.axis % max(bottom[0].num_axes, 1)
        # What pads a block must stay 0 in the gradient, too.
        whole = tuple(home.shape) == tuple(home.padded)
        return super().supports(layer, bottom) and not home.plain and whole and axis < 2

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.top_homes = [plain(top[0].shape)]
        self.settle(top)
        self._layout = PLACE.home(bottom[0])
        self._rows = (top[0].count, bottom[0].count // top[0].count)

    def _seen(self, buffer: Any) -> np.ndarray:
        return buffer.floats[: math.prod(self._rows)].reshape(self._rows)

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer: Any = self.layer
        x = self._seen(bottom[0].data_mem.read_in(PLACE, self._layout))
        layer.reduce(x, top[0].overwrite_cpu_data().reshape(-1))

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if not propagate_down[0]:
            return
        layer: Any = self.layer
        x = self._seen(bottom[0].data_mem.read_in(PLACE, self._layout))
        layer.spread(top[0].cpu_diff(), x, self._seen(bottom[0].diff_mem.write_in(PLACE, self._layout)))
