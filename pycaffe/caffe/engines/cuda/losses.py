"""Losses and Accuracy: each block sums its share, then one block sums the shares, in an order that is always
the same.

Labels are checked on the host, where they nearly always come from.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from .base import CudaKernel, keep, scratch, sum_of
from .place import Buffer, clear, copy, read, write
from .softmax import softmax


def ignored(label: int | None) -> tuple[int, int]:
    """As kernels take an ignore_label: (is there one, which)."""
    return (0, 0) if label is None else (1, label)


@kernel("SoftmaxWithLoss", engine="cuda")
class SoftmaxWithLossKernel(CudaKernel):
    source = "softmax_loss"
    _prob: Buffer | None = None

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._prob = keep(self._prob, bottom[0].count)
        self._blocks = self.layer.score_blocks
        self._ignored = ignored(self.layer.ignore_label)

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        assert self._prob is not None
        layer, prob, (outer, classes, inner) = self.layer, self._prob.address, self._blocks
        layer.read_labels(bottom[1])
        softmax(read(bottom[0].data_mem), prob, outer, classes, inner)
        labels, count = read(bottom[1].data_mem), outer * inner
        blocks = self.code.forward.blocks(count)
        partial = scratch(run, "partial", blocks)
        loss = write(top[0].data_mem)
        if count:
            self.code.forward.elements(count, prob, labels, partial, classes, inner, *self._ignored)
            sum_of(run, partial, blocks, loss, 1 / layer.divisor)
        else:
            clear(loss, 1)
        if len(top) > 1:
            copy(prob, write(top[1].data_mem), bottom[0].count)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        assert self._prob is not None
        self.layer.refuse_label_gradient(propagate_down)
        if propagate_down[0]:
            _, classes, inner = self._blocks
            labels, weight = read(bottom[1].data_mem), read(top[0].diff_mem)
            dx, divisor = write(bottom[0].diff_mem), self.layer.divisor
            self.code.backward.elements(
                bottom[0].count,
                self._prob.address,
                labels,
                weight,
                dx,
                classes,
                inner,
                divisor,
                *self._ignored,
            )


@kernel("Accuracy", engine="cuda")
class AccuracyKernel(CudaKernel):
    source = "accuracy"

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer, (outer, classes, inner) = self.layer, self.layer.score_blocks
        counted, count = layer.count_labels(bottom[1]), outer * inner
        blocks = self.code.forward.blocks(count)
        partial = scratch(run, "partial", blocks)
        hits = present = 0
        if len(top) > 1:
            hits = scratch(run, "classes", 2 * classes)
            present = hits + 4 * classes
            clear(hits, 2 * classes)
        scores, labels, share = read(bottom[0].data_mem), read(bottom[1].data_mem), write(top[0].data_mem)
        if count:
            self.code.forward.elements(
                count,
                scores,
                labels,
                partial,
                hits,
                present,
                classes,
                inner,
                layer.top_k,
                *ignored(layer.ignore_label),
            )
            sum_of(run, partial, blocks, share, 1 / max(counted, 1))
        else:
            clear(share, 1)
        if len(top) > 1:
            self.code.shares.elements(classes, hits, present, write(top[1].data_mem))


@kernel("EuclideanLoss", engine="cuda")
class EuclideanLossKernel(CudaKernel):
    source = "euclidean_loss"
    _difference: Buffer | None = None

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._difference = keep(self._difference, bottom[0].count)
        self._num = max(bottom[0].shape[0], 1)

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        assert self._difference is not None
        count, difference = bottom[0].count, self._difference.address
        blocks = self.code.forward.blocks(count)
        partial = scratch(run, "partial", blocks)
        a, b, loss = read(bottom[0].data_mem), read(bottom[1].data_mem), write(top[0].data_mem)
        if count:
            self.code.forward.elements(count, a, b, difference, partial)
            sum_of(run, partial, blocks, loss, 0.5 / self._num)
        else:
            clear(loss, 1)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        assert self._difference is not None
        weight = read(top[0].diff_mem)
        for blob, wanted, sign in zip(bottom, propagate_down, (1, -1), strict=True):
            if wanted:
                difference, dx = self._difference.address, write(blob.diff_mem)
                self.code.backward.elements(blob.count, difference, weight, dx, sign / self._num)


@kernel("SigmoidCrossEntropyLoss", engine="cuda")
class SigmoidCrossEntropyLossKernel(CudaKernel):
    source = "sigmoid_cross_entropy_loss"

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer, count = self.layer, bottom[0].count
        self._ignored = ignored(layer.ignore_label)
        layer.count_targets(bottom)
        blocks = self.code.forward.blocks(count)
        partial = scratch(run, "partial", blocks)
        x, t, loss = read(bottom[0].data_mem), read(bottom[1].data_mem), write(top[0].data_mem)
        if count:
            self.code.forward.elements(count, x, t, partial, *self._ignored)
            sum_of(run, partial, blocks, loss, 1 / layer.divisor)
        else:
            clear(loss, 1)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        self.layer.refuse_label_gradient(propagate_down)
        if propagate_down[0]:
            x, t, weight = read(bottom[0].data_mem), read(bottom[1].data_mem), read(top[0].diff_mem)
            dx, divisor = write(bottom[0].diff_mem), self.layer.divisor
            self.code.backward.elements(bottom[0].count, x, t, weight, dx, divisor, *self._ignored)


@kernel("ContrastiveLoss", engine="cuda")
class ContrastiveLossKernel(CudaKernel):
    source = "contrastive_loss"
    _difference: Buffer | None = None
    _factor: Buffer | None = None

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._num, self._channels = bottom[0].shape[0], bottom[0].axis_count(1)
        self._difference = keep(self._difference, bottom[0].count)
        self._factor = keep(self._factor, self._num)
        param = self.layer.layer_param.contrastive_loss_param
        self._constants = (float(np.float32(param.margin)), int(param.legacy_version))

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        assert self._difference is not None and self._factor is not None
        num, channels = self._num, self._channels
        a, b, y = (read(blob.data_mem) for blob in bottom)
        terms = scratch(run, "partial", num)
        self.code.forward.rows(
            num,
            channels,
            a,
            b,
            y,
            self._difference.address,
            self._factor.address,
            terms,
            channels,
            *self._constants,
        )
        sum_of(run, terms, num, write(top[0].data_mem), 0.5 / max(num, 1))

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        assert self._difference is not None and self._factor is not None
        if propagate_down[2]:
            self.layer.backward(top, propagate_down, bottom)  # which refuses
        weight = read(top[0].diff_mem)
        for blob, wanted, sign in zip(bottom, propagate_down, (1, -1), strict=False):
            if wanted:
                difference, factor, dx = self._difference.address, self._factor.address, write(blob.diff_mem)
                scale = sign / max(self._num, 1)
                self.code.backward.elements(blob.count, difference, factor, weight, dx, self._channels, scale)
