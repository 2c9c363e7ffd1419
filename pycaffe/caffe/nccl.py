"""NCCL: training on several GPUs, as the original's Python interface names it.

uid = caffe.NCCL.new_uid()                 # once; then in one process for each GPU:
caffe.set_mode_gpu(); caffe.set_device(gpus[rank])
caffe.set_solver_count(len(gpus)); caffe.set_solver_rank(rank); caffe.set_multiprocess(True)
solver = caffe.SGDSolver("solver.prototxt")
nccl = caffe.NCCL(solver, uid)
nccl.bcast()
solver.add_callback(nccl)
solver.step(solver.param.max_iter)
"""

from __future__ import annotations

from . import context, kernels
from .data_parallel import DataParallel
from .errors import EngineError
from .solver import Solver


def has_nccl() -> bool:
    """Can this installation train on several GPUs?"""
    try:
        NCCL.new_uid()
    except EngineError:
        return False
    return True


class NCCL(DataParallel):
    """Ties the solvers of several processes together; rank and count are the context's.

    uid: new_uid()'s in all of them. Returns when all ranks have come. Raises EngineError without NCCL.
    """

    def __init__(self, solver: Solver, uid: str):
        _require()
        from .engines.cuda.nccl import NcclCollective

        super().__init__(solver, NcclCollective(uid, context.solver_rank(), context.solver_count()))

    @staticmethod
    def new_uid() -> str:
        """A name that all processes of one training share. Raises EngineError without NCCL."""
        _require()
        from .engines.cuda.nccl import new_id

        return new_id()

    def bcast(self) -> None:
        """Rank 0's parameters come to all."""
        self.broadcast()


def _require() -> None:
    reason = kernels.gpu_absence()
    if reason:
        raise EngineError(
            f"NCCL is not part of this installation (caffe.has_nccl() is False): {reason}. Train with one "
            "solver, "
            "with a larger batch or with iter_size"
        )
