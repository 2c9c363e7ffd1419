"""Convolution or InnerProduct with what follows: ReLU, a sum; in testing, BatchNorm and Scale."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import LayerError, NetError
from ...execution import ExecutionContext
from .groups import Group, unfinished
from .inner_product import InnerProductKernel
from .layouts import plain
from .normalization import BatchNormKernel
from .place import PLACE
from .primitives import Buffer, Memory


class _Deferred:
    """Computes the top that a group has swallowed, as long as its net lives."""

    def __init__(self, group: FusedWeighted, run: ExecutionContext):
        self._group, self._run = weakref.ref(group), run

    def __call__(self) -> None:
        group = self._group()
        if group is None:
            raise NetError("this blob was to be computed when it is read, but its net has been deleted since")
        group.compute_top(self._run)


class Folded:
    """A convolution's weights and bias with BatchNorm's running statistics and Scale in them."""

    def __init__(self, step: Any, folded: Sequence[Any]):
        self._step, self._folded = step, folded
        layout = step.kernel.weights
        self._plain = np.empty(step.layer.blobs[0].shape, np.float32)
        self._channels = plain((step.layer.num_output,))
        self.weights, self.bias = (
            Memory(layout, Buffer(layout.nbytes)),
            Memory(self._channels, Buffer(self._channels.nbytes)),
        )
        self.blobs = [b for s in (step, *folded) for b in s.layer.blobs]
        self.version = 0
        self._versions: Sequence[tuple[object, int]] = ()

    def refresh(self) -> None:
        """Fold anew if a parameter may have changed."""
        versions = [(weakref.ref(b.data_mem), b.data_mem.version) for b in self.blobs]
        if versions == self._versions:
            return
        self._versions = versions
        self.version += 1
        weight, *biases = self._step.layer.blobs
        factor = np.ones(weight.shape[0], np.float64)
        offset = biases[0].cpu_data().astype(np.float64) if biases else np.zeros(weight.shape[0])
        for step in self._folded:
            if isinstance(step.kernel, BatchNormKernel):
                step.kernel.running()
                inverse = 1 / np.sqrt(step.kernel.variance.astype(np.float64) + step.layer.eps)
                factor *= inverse
                offset = (offset - step.kernel.mean) * inverse
            else:
                scale, *shift = step.layer.blobs
                factor *= scale.cpu_data().reshape(-1)
                offset *= scale.cpu_data().reshape(-1)
                if shift:
                    offset += shift[0].cpu_data().reshape(-1)
        rows = self._plain.reshape(weight.shape[0], -1)
        np.multiply(weight.cpu_data().reshape(rows.shape), factor.astype(np.float32)[:, None], out=rows)
        PLACE.lay(self._plain, self.weights)
        PLACE.lay(offset.astype(np.float32), self.bias)


class FusedWeighted(Group):
    """Convolution or InnerProduct, with what is folded into it, a sum and ReLU."""

    repeatable = True

    def __init__(self, steps: Sequence[Any], folded: Sequence[Any], total: Any, relu: Any):
        super().__init__(steps)
        self._folded_steps, self._total, self._relu = folded, total, relu
        self._folded: Folded | None = None
        self._sources: list[Any] = []

    def prepare(self, run: ExecutionContext) -> bool:
        step, kernel = self.steps[0], self.steps[0].kernel
        target = step.top[0]
        other = None
        if self._total is not None:
            target = self._total.top[0]
            other = next(b for b in self._total.bottom if b is not step.top[0])
        slope = None if self._relu is None else self._relu.layer.negative_slope
        folded = Folded(step, self._folded_steps) if self._folded_steps else None
        if isinstance(kernel, InnerProductKernel):
            assert slope is not None  # nothing else is joined to one
            call = kernel.joined(run, step.bottom[0], target, slope)
        else:
            call = kernel.joined(run, step.bottom[0], target, other, slope, folded)
        if call is None:
            return False
        self._folded, self._call = folded, call
        # The convolution's own top, if no step writes it, and what it is computed from.
        self.swallowed = None
        if self._total is not None and target is not step.top[0]:
            self.swallowed = step.top[0]
        sources = [
            b for s in self.steps[: 1 + len(self._folded_steps)] for b in (*s.bottom[:1], *s.layer.blobs)
        ]
        self._sources = [b for b in dict.fromkeys(sources) if b is not step.top[0]]
        return True

    def begin(self) -> None:
        if self.swallowed is not None:
            mem = self.swallowed.data_mem
            mem.release(b.data_mem for b in self._sources)
            mem.defer(unfinished)

    def run(self, run: ExecutionContext) -> None:
        if self.swallowed is not None and any(b.data_mem.exporter() is not None for b in self._sources):
            # Whoever holds an array of a source may change it unseen: compute everything now.
            self.only_called = False
            for step in self.steps:
                step.forward(run)
            return
        if self._folded is not None:
            self._folded.refresh()
        self._call()
        if self.swallowed is not None:
            self._seen = [b.data_mem for b in self._sources]
            self.swallowed.data_mem.defer(_Deferred(self, run), self._seen)
        self.again()

    def again(self) -> None:
        for step in self._folded_steps:
            step.kernel.restore = self._reference

    def folded_parameters(self) -> Sequence[Any]:
        return () if self._folded is None else self._folded.blobs

    def lazy_sources(self) -> Sequence[Any]:
        return () if self.swallowed is None else self._sources

    def compute_top(self, run: ExecutionContext) -> None:
        """The convolution's own top, which the sum swallowed."""
        if any(a is not b.data_mem for a, b in zip(self._seen, self._sources, strict=True)):
            raise LayerError(
                "its top was swallowed by the sum that follows, and its parameters have been replaced by "
                "another net's since: read it before that",
                layer=self.layer.name,
                layer_type=self.layer.type,
            )
        for step in self.steps[: 1 + len(self._folded_steps)]:
            step.kernel.forward(run, step.bottom, step.top)

    def restore(self, run: ExecutionContext) -> None:
        """Run the steps one by one, for what their backward needs."""
        for step in self.steps:
            step.kernel.forward(run, step.bottom, step.top)
