"""Solver updates, on parameters as they lie: every solver's update is one and the same for each element."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...blob import Blob
from ...kernels import UpdateKernel, kernel
from ...synced_mem import SyncedMem
from .base import Call
from .layouts import MemoryDesc, plain
from .normalization import vector
from .place import PLACE
from .primitives import BINARY_ADD, DST, SRC, SRC_1, Attributes, Memory, PrimitiveDesc, scale_argument

if TYPE_CHECKING:
    from ...net_wiring import LearnableParam

# Elements that one pair of primitives updates: few enough that what the two share stays in a cache, many
# enough that starting the threads does not count.
CHUNK = 1 << 19
# Bytes of a parameter from which on that pays.
_LARGE = 1 << 18


class FlatUpdate(UpdateKernel):
    """Hands the solver flat arrays of the layout in which backward left the gradient, padding included."""

    def __init__(self, solver: Any):
        super().__init__(solver)
        # Of the padding, which is and stays zero, a solver without a delta to divide by would make NaN.
        self._divides = solver.type in ("AdaGrad", "RMSProp", "AdaDelta", "Adam")

    def _layout(self, param: LearnableParam) -> MemoryDesc | None:
        """Where the parameter lies; None for the host."""
        diff, data = param.blob.diff_mem, param.blob.data_mem
        layouts = diff.fresh_in(PLACE) if not diff.is_zero else data.fresh_in(PLACE)
        if not layouts or (diff.host_fresh and not data.fresh_in(PLACE)):
            return None
        layout: MemoryDesc = layouts[0]
        padded = layout.nbytes != data.size * data.dtype.itemsize
        return None if padded and self._divides and not self.solver.param.delta else layout

    def gradient(self, param: LearnableParam) -> np.ndarray:
        layout = self._layout(param)
        if layout is None:
            return super().gradient(param)
        return param.blob.diff_mem.modify_in(PLACE, layout).floats

    def update(
        self, param: LearnableParam, history: Sequence[Blob], scale: float, decay: float, rate: float
    ) -> None:
        layout = self._layout(param)
        if layout is None:
            self.solver.update(param, history, scale, decay, rate)
            return
        data, diff, *past = (
            mem.modify_in(PLACE, layout).floats
            for mem in (param.blob.data_mem, param.blob.diff_mem, *(h.data_mem for h in history))
        )
        self.solver.update_flat(data, diff, past, scale, decay, rate)


for _type in ("Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"):
    kernel(_type, engine="onednn")(FlatUpdate)


class _MomentumStep:
    """V ← momentum · V + a · g + b · W;  W ← W - V, for so many elements."""

    def __init__(self, run: Any, size: int, momentum: float, factors: np.ndarray):
        layout = plain((size,))
        self.data, self.diff, self.past = (Memory(layout) for _ in range(3))
        self._velocity = Call(
            run,
            PrimitiveDesc(
                "binary",
                BINARY_ADD,
                layout,
                layout,
                layout,
                Attributes([("sum", momentum)], scaled=(SRC, SRC_1)),
            ),
            {
                SRC: self.diff,
                SRC_1: self.data,
                DST: self.past,
                scale_argument(SRC): vector(factors[0:1]),
                scale_argument(SRC_1): vector(factors[1:2]),
            },
        )
        self._step = Call(
            run,
            PrimitiveDesc("binary", BINARY_ADD, layout, layout, layout, Attributes(scaled=(SRC_1,))),
            {SRC: self.data, SRC_1: self.past, DST: self.data, scale_argument(SRC_1): vector(factors[2:3])},
        )

    def __call__(self, data: int, diff: int, past: int) -> None:
        self.data.point(data)
        self.diff.point(diff)
        self.past.point(past)
        self._velocity()
        self._step()


class _CopyOfHistory:
    """A parameter's diff after an update: the update itself, which is the velocity. Copied when it is
    read."""

    def __init__(self, diff: SyncedMem, history: SyncedMem, layout: MemoryDesc):
        self._diff, self._history, self._layout = weakref.ref(diff), history, layout

    def __call__(self) -> None:
        diff = self._diff()
        if diff is not None:
            source = self._history.read_in(PLACE, self._layout).floats
            np.copyto(diff.write_in(PLACE, self._layout).floats, source)


@kernel("SGD", engine="onednn")
class MomentumUpdate(FlatUpdate):
    """Large parameters by two primitives for each chunk."""

    def __init__(self, solver: Any):
        super().__init__(solver)
        self._factors = np.array([0, 0, -1], np.float32)
        self._steps: dict[tuple[int, float], _MomentumStep] = {}

    def update(
        self, param: LearnableParam, history: Sequence[Blob], scale: float, decay: float, rate: float
    ) -> None:
        recipe, layout = self.solver.param, self._layout(param)
        if layout is None or layout.nbytes < _LARGE or (decay and recipe.regularization_type != "L2"):
            super().update(param, history, scale, decay, rate)
            return
        diff_mem, past_mem = param.blob.diff_mem, history[0].data_mem
        data = param.blob.data_mem.modify_in(PLACE, layout).address
        diff = diff_mem.read_in(PLACE, layout).address
        past = past_mem.modify_in(PLACE, layout).address
        self._factors[:2] = rate * scale, rate * decay
        count = layout.nbytes // 4
        for start in range(0, count, CHUNK):
            size, offset = min(CHUNK, count - start), 4 * start
            key = (size, recipe.momentum)
            step = self._steps.get(key)
            if step is None:
                step = self._steps[key] = _MomentumStep(
                    self.solver.net.run, size, recipe.momentum, self._factors
                )
            step(data + offset, diff + offset, past + offset)
        # The filler's or the file's copy is not needed any more, until somebody asks.
        for blob in (param.blob, *history):
            blob.forget_host()
        diff_mem.defer(_CopyOfHistory(diff_mem, past_mem, layout), [past_mem])
