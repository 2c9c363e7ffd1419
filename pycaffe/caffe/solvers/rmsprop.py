"""RMSProp: a rate per weight, from a fading mean of its squared gradients."""

from __future__ import annotations

import numpy as np

from ..errors import SolverError
from ..solver_registry import register_solver
from .sgd import SGDSolver


@register_solver("RMSProp")
class RMSPropSolver(SGDSolver):
    """S ← rms_decay · S + (1 - rms_decay) · g²;  W ← W - lr · g / (√S + delta).

    S: one history blob per parameter; g as in SGDSolver.
    rms_decay (default 0.99) in [0, 1); delta (default 1e-8) keeps the division finite.
    Raises SolverError for momentum, and for rms_decay outside its range.
    Source: Tieleman, Hinton, RMSProp, COURSERA Neural Networks for Machine Learning, lecture 6.5 (2012).
    """

    def check_param(self) -> None:
        super().check_param()
        if self.param.momentum:
            raise SolverError(
                f"Momentum cannot be used with RMSProp. Leave out momentum (={self.param.momentum:g}), or "
                'use type: "SGD", "Nesterov" or "Adam"'
            )
        if not 0 <= self.param.rms_decay < 1:
            raise SolverError(
                f"rms_decay should lie between 0 and 1 (0 <= rms_decay < 1), not {self.param.rms_decay:g}"
            )

    def compute_update(
        self, diff: np.ndarray, history: list[np.ndarray], rate: float, temporary: np.ndarray
    ) -> None:
        decay = self.param.rms_decay
        squares, work = history[0], temporary[0]
        np.multiply(diff, diff, out=work)
        work *= np.float32(1 - decay)
        squares *= np.float32(decay)
        squares += work
        np.sqrt(squares, out=work)
        work += np.float32(self.param.delta)
        diff /= work
        diff *= np.float32(rate)
