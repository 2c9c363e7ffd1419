"""Solver updates, on parameters as they lie: every solver's update is one and the same for each element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...blob import Blob
from ...kernels import UpdateKernel, kernel
from .place import PLACE
from .primitives import MemoryDesc

if TYPE_CHECKING:
    from ...net_wiring import LearnableParam


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


for _type in ("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"):
    kernel(_type, engine="onednn")(FlatUpdate)
