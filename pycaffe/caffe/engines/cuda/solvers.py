"""Solver updates: parameters, gradients and histories stay on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ...blob import Blob
from ...kernels import UpdateKernel, kernel
from ...synced_mem import SyncedMem
from . import driver
from .base import arithmetic, scratch, sum_of
from .compiler import MOST_ELEMENTS, Module, module
from .place import clear, modify, write

if TYPE_CHECKING:
    from ...net_wiring import LearnableParam


class CudaUpdate(UpdateKernel):
    """update(n, w, diff, *histories, scale, decay, l1, rate, *constants) of cuda_kernels/<source>.cu"""

    source: ClassVar[str] = ""

    def __init__(self, solver: Any):
        super().__init__(solver)
        driver.check_device()
        self.code: Module = module(self.source)
        self._norm = SyncedMem(1)

    def supports(self, param: LearnableParam, history: Sequence[Blob]) -> bool:
        return param.blob.dtype == "float32" and param.blob.count < MOST_ELEMENTS

    def constants(self) -> tuple[float, ...]:
        """A subclass gives those of the coming update: a script may change the recipe while it runs."""
        raise NotImplementedError

    def update(
        self, param: LearnableParam, history: Sequence[Blob], scale: float, decay: float, rate: float
    ) -> None:
        blob = param.blob
        mems = (blob.data_mem, blob.diff_mem, *(h.data_mem for h in history))
        l1 = int(self.solver.param.regularization_type == "L1")
        addresses = [modify(mem) for mem in mems]
        self.code.update.elements(
            blob.count, *addresses, scale, decay, l1, self.rate(rate), *self.constants()
        )

    def rate(self, rate: float) -> float:
        return rate

    def sumsq(self, params: Sequence[LearnableParam]) -> float:
        """One number comes back to the host."""
        run, math = self.solver.net.run, arithmetic()
        sums = scratch(run, "sums", len(params))
        for i, param in enumerate(params):
            count = param.blob.count
            blocks = math.partial_squares.blocks(count)
            partial = scratch(run, "partial", blocks)
            if count:
                math.partial_squares.elements(count, modify(param.blob.diff_mem), partial)
                sum_of(run, partial, blocks, sums + 4 * i, 1.0)
            else:
                clear(sums + 4 * i, 1)
        math.total.rows(1, len(params), sums, len(params), write(self._norm), 1.0)
        return float(self._norm.read()[0])

    def scale(self, params: Sequence[LearnableParam], factor: float) -> None:
        for param in params:
            diff = modify(param.blob.diff_mem)
            arithmetic().scaled.elements(param.blob.count, diff, diff, factor)


@kernel("SGD", engine="cuda")
class SGDUpdate(CudaUpdate):
    source = "sgd"

    def constants(self) -> tuple[float, ...]:
        return (self.solver.param.momentum,)


@kernel("Nesterov", engine="cuda")
class NesterovUpdate(CudaUpdate):
    source = "nesterov"

    def constants(self) -> tuple[float, ...]:
        return (self.solver.param.momentum,)


@kernel("AdaGrad", engine="cuda")
class AdaGradUpdate(CudaUpdate):
    source = "adagrad"

    def constants(self) -> tuple[float, ...]:
        return (self.solver.param.delta,)


@kernel("RMSProp", engine="cuda")
class RMSPropUpdate(CudaUpdate):
    source = "rmsprop"

    def constants(self) -> tuple[float, ...]:
        return (self.solver.param.rms_decay, self.solver.param.delta)


@kernel("AdaDelta", engine="cuda")
class AdaDeltaUpdate(CudaUpdate):
    source = "adadelta"

    def constants(self) -> tuple[float, ...]:
        return (self.solver.param.momentum, self.solver.param.delta)


@kernel("Adam", engine="cuda")
class AdamUpdate(CudaUpdate):
    source = "adam"

    def constants(self) -> tuple[float, ...]:
        return (self.solver.param.momentum, self.solver.param.momentum2, self.solver.param.delta)

    def rate(self, rate: float) -> float:
        return rate * self.solver.correction()
