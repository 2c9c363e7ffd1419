"""AdaGrad: a rate per weight that falls with the gradients it has seen."""

from __future__ import annotations

import numpy as np

from ..errors import SolverError
from ..solver_registry import register_solver
from .sgd import SGDSolver


@register_solver("AdaGrad")
class AdaGradSolver(SGDSolver):
    """S ← S + g²;  W ← W - lr · g / (√S + delta).

    S: one history blob per parameter; g as in SGDSolver.
    delta (default 1e-8) keeps the division finite. Raises SolverError for momentum.
    Source: Duchi, Hazan, Singer, Adaptive Subgradient Methods for Online Learning (2011).
    """

    def check_param(self) -> None:
        super().check_param()
        if self.param.momentum:
            raise SolverError(
                f"Momentum cannot be used with AdaGrad. Leave out momentum (={self.param.momentum:g}), or "
                'use type: "SGD", "Nesterov" or "Adam"'
            )

    def compute_update(
        self, diff: np.ndarray, history: list[np.ndarray], rate: float, temporary: np.ndarray
    ) -> None:
        squares, work = history[0], temporary[0]
        np.multiply(diff, diff, out=work)
        squares += work
        np.sqrt(squares, out=work)
        work += np.float32(self.param.delta)
        diff /= work
        diff *= np.float32(rate)
