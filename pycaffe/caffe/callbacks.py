"""What may listen to a solver, and how it is asked to stop or to write a snapshot."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .net_wiring import LearnableParam


class SolverAction(enum.Enum):
    """What a solver is asked to do at the next opportunity."""

    NONE = 0
    STOP = 1
    SNAPSHOT = 2


class SolverCallback:
    """Hooks into each iteration; override what you need.

    on_start: before the first forward of an iteration. on_param_gradient_ready: a parameter's
    gradient is complete, in backward order, in the last of iter_size passes only, so that it may be
    reduced over ranks while backward goes on. on_gradients_ready: all are; the update follows.
    on_exception: the iteration failed, and the error will be raised after this returns.
    """

    def on_start(self) -> None: ...

    def on_param_gradient_ready(self, param: LearnableParam) -> None: ...

    def on_gradients_ready(self) -> None: ...

    def on_exception(self, error: BaseException) -> None: ...
