"""What joined steps have in common, and the simplest of them: a sum with ReLU."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from ...errors import NetError
from ...execution import ExecutionContext
from ...kernels import Fused
from .library import OneDNNError
from .place import PLACE
from .primitives import RELU


class Group(Fused):
    """prepare is called before the first forward and after each change of a member's kernel; False leaves
    this forward to the steps.

    swallowed: a member's top that is computed only when it is read. only_called: the last forward was nothing
    but calls of primitives, which may be repeated (repeated.py)."""

    def __init__(self, steps: Sequence[Any]):
        super().__init__(steps)
        self.swallowed: Any = None
        self.only_called = False
        self._kernels = [step.kernel for step in steps]
        self._known: list[Any] = []
        self._able = False
        # Kernels and blobs that refer to the group do so weakly, so that a net is freed as soon as it is
        # dropped.
        self._reference = weakref.ref(self)

    @property
    def intact(self) -> bool:
        """Have all steps the kernels with which they were joined? Another shape may have brought others."""
        return all(step.kernel is kernel for step, kernel in zip(self.steps, self._kernels, strict=True))

    def ready(self, run: ExecutionContext) -> bool:
        for step in self.steps:
            if step.outdated:
                return False
        if not self.intact:
            return False
        for step, known in zip(self.steps, self._known, strict=False):
            if step.kernel.known is not known:
                break
        else:
            if self._known:
                return self._able
        self._known = [step.kernel.known for step in self.steps]
        try:
            self._able = self.prepare(run)
        except OneDNNError as error:
            if not error.unimplemented:
                raise
            self._able = False
        return self._able

    def prepare(self, run: ExecutionContext) -> bool:
        """A subclass builds its primitives here; False where oneDNN has none for this case."""
        raise NotImplementedError

    def run(self, run: ExecutionContext) -> None:
        """A subclass does forward here."""
        raise NotImplementedError

    def forward(self, run: ExecutionContext) -> float:
        if self.ready(run):
            self.only_called = self.repeatable
            self.run(run)
            return 0.0
        self.only_called = False
        return sum(step.forward(run) for step in self.steps)

    def folded_parameters(self) -> Sequence[Any]:
        """Blobs from which forward computes weights of its own whenever they have changed."""
        return ()

    def lazy_sources(self) -> Sequence[Any]:
        """Blobs from which `swallowed` is computed."""
        return ()

    def again(self) -> None:
        """What forward does besides its calls."""


def unfinished() -> None:
    raise NetError("this blob was to be computed when it is read, but the last pass did not come that far")


class FusedSum(Group):
    """Eltwise's sum of two, and ReLU. Backward, each bottom's diff is the top's: lent, not copied."""

    fuses_backward = True
    lends_diffs = True
    repeatable = True

    def prepare(self, run: ExecutionContext) -> bool:
        total, relu = self.steps
        post = [("eltwise", RELU, relu.layer.negative_slope, 0.0)]
        self._call = total.kernel.forward_call(run, total.bottom, total.top[0], post)
        return True

    def run(self, run: ExecutionContext) -> None:
        self._call()

    def begin_backward(self) -> None:
        total = self.steps[0]
        lender = total.top[0].diff_mem
        for blob in total.bottom:
            if blob.diff_mem.borrows_from(lender):
                blob.diff_mem.release([lender])
                blob.diff_mem.defer(unfinished)

    def backward(self, run: ExecutionContext) -> None:
        total, relu = self.steps
        relu.backward(run)
        if not self.intact:
            total.backward(run)
            return
        layout = total.kernel.layout
        lender = total.top[0].diff_mem
        if layout.plain or any(blob.diff_mem is lender for blob in total.bottom):
            total.backward(run)
            return
        for blob, wanted in zip(total.bottom, total.propagate_down, strict=True):
            if wanted:
                blob.diff_mem.borrow(lender, PLACE, layout)
