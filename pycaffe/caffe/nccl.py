"""NCCL: training on several GPUs, as the original's Python interface names it."""

from __future__ import annotations

from typing import NoReturn

from .errors import EngineError


def has_nccl() -> bool:
    """Can this installation train on several GPUs?"""
    return False


class NCCL:
    """NCCL(solver, uid) ties the solvers of several processes together.

    Raises EngineError: this installation drives one device in each process.
    """

    def __init__(self, solver: object, uid: str):
        _refuse()

    @staticmethod
    def new_uid() -> str:
        """A name that all processes of one training share. Raises EngineError."""
        _refuse()


def _refuse() -> NoReturn:
    raise EngineError(
        "NCCL is not part of this installation (caffe.has_nccl() is False): train with one solver, with a "
        "larger batch or with iter_size"
    )
