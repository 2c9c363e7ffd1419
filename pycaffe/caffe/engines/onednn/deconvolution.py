"""Deconvolution: the top is the image under the window."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from .base import Call, Gradient
from .convolution_geometry import Convolutional
from .place import Operand
from .primitives import (
    DIFF_DST,
    DIFF_DST_MD,
    DIFF_SRC,
    DIFF_SRC_MD,
    DIFF_WEIGHTS,
    DIFF_WEIGHTS_MD,
    DST,
    SRC,
    SRC_MD,
    WEIGHTS,
    WEIGHTS_MD,
)


@kernel("Deconvolution", engine="onednn")
class DeconvolutionKernel(Convolutional):
    """The top is the image under the window: forward is a convolution's way back, and backward its
    forward."""

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().prepare(run, bottom, top)
        desc = self.data_primitive()
        self.top_homes = [desc.desc(DIFF_SRC_MD)] * len(top)
        self.settle(top)
        self._weights_layout = desc.desc(WEIGHTS_MD)
        self._forward = [
            Call(
                run,
                desc,
                {
                    DIFF_DST: Operand(source, "data", desc.desc(DIFF_DST_MD), "read"),
                    WEIGHTS: Operand(self.layer.blobs[0], "data", self._weights_layout, "read"),
                    DIFF_SRC: Operand(target, "data", desc.desc(DIFF_SRC_MD), "write"),
                },
            )
            for source, target in zip(bottom, top, strict=True)
        ]

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for call, target in zip(self._forward, top, strict=True):
            call()
            if len(self.layer.blobs) > 1:
                y = target.mutable_cpu_data()
                y += self.layer.blobs[1].cpu_data().reshape(-1, *[1] * (y.ndim - 2))

    def prepare_backward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        desc = self.weights_primitive(bias=False)
        self._gradient = Gradient(
            run, self.layer.blobs[0], desc.desc(DIFF_WEIGHTS_MD), True, self._weights_layout
        )
        self._backward_weights = [
            Call(
                run,
                desc,
                {
                    SRC: Operand(target, "diff", desc.desc(SRC_MD), "read"),
                    DIFF_DST: Operand(source, "data", desc.desc(DIFF_DST_MD), "read"),
                    DIFF_WEIGHTS: self._gradient.memory,
                },
            )
            for source, target in zip(bottom, top, strict=True)
        ]
        self._backward_data = [
            Call(
                run,
                self.found,
                {
                    SRC: Operand(target, "diff", self.image, "read"),
                    WEIGHTS: Operand(self.layer.blobs[0], "data", self.weights, "read"),
                    DST: Operand(source, "diff", self.features, "write"),
                },
            )
            for source, target in zip(bottom, top, strict=True)
        ]

    def run_backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        wanted = self.layer.param_propagate_down
        if len(wanted) > 1 and wanted[1]:
            for target in top:
                dy = target.cpu_diff()
                flat = dy.reshape(*dy.shape[:2], -1)
                self.layer.blobs[1].mutable_cpu_diff()[...] += np.einsum("ncs->nc", flat).sum(axis=0)
        if wanted[0]:
            for call in self._backward_weights:
                self._gradient.before()
                call()
                self._gradient.after()
        for call, down in zip(self._backward_data, propagate_down, strict=True):
            if down:
                call()
