"""Adam: momentum, and a rate per weight, both corrected for their start at zero."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from ..errors import SolverError
from ..solver_registry import register_solver
from .sgd import SGDSolver


@register_solver("Adam")
class AdamSolver(SGDSolver):
    """M ← β₁ · M + (1 - β₁) · g;  S ← β₂ · S + (1 - β₂) · g²;
    W ← W - lr · √(1 - β₂ᵗ) / (1 - β₁ᵗ) · M / (√S + delta),  t = iter + 1.

    M, S: two history blobs per parameter, all M before all S; g as in SGDSolver.
    β₁ is momentum (default 0; the paper uses 0.9), β₂ is momentum2 (default 0.999), both in [0, 1); delta
    (default 1e-8) is the paper's ε-hat. Raises SolverError for β₁ and β₂ outside their range.
    Source: Kingma, Ba, Adam: A Method for Stochastic Optimization (2014), end of section 2.
    """

    histories: ClassVar[int] = 2

    def check_param(self) -> None:
        super().check_param()
        for field in ("momentum", "momentum2"):
            value = getattr(self.param, field)
            if not 0 <= value < 1:
                raise SolverError(f"Adam needs 0 <= {field} < 1, not {value:g}")

    def correction(self) -> float:
        """√(1 - β₂ᵗ) / (1 - β₁ᵗ) of the coming update."""
        t = self.iter + 1
        return math.sqrt(1 - self.param.momentum2**t) / (1 - self.param.momentum**t)

    def compute_update(
        self, diff: np.ndarray, history: list[np.ndarray], rate: float, temporary: np.ndarray
    ) -> None:
        beta1, beta2 = self.param.momentum, self.param.momentum2
        mean, squares = history
        work = temporary[0]
        np.multiply(diff, diff, out=work)
        work *= np.float32(1 - beta2)
        squares *= np.float32(beta2)
        squares += work
        diff *= np.float32(1 - beta1)
        mean *= np.float32(beta1)
        mean += diff
        np.sqrt(squares, out=work)
        work += np.float32(self.param.delta)
        np.divide(mean, work, out=diff)
        diff *= np.float32(rate * self.correction())
