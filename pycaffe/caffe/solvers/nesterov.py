"""Nesterov's accelerated gradient."""

from __future__ import annotations

import numpy as np

from ..solver_registry import register_solver
from .sgd import SGDSolver


@register_solver("Nesterov")
class NesterovSolver(SGDSolver):
    """V' ← momentum · V + lr · g;  W ← W - ((1 + momentum) · V' - momentum · V).

    V: one history blob per parameter; g as in SGDSolver.
    momentum (default 0) in [0, 1).
    Source: Nesterov, A Method of Solving a Convex Programming Problem with Convergence Rate O(1/k²) (1983),
    in the form of Sutskever et al., On the Importance of Initialization and Momentum in Deep Learning (2013).
    """

    def compute_update(
        self, diff: np.ndarray, history: list[np.ndarray], rate: float, temporary: np.ndarray
    ) -> None:
        momentum = self.param.momentum
        velocity, before = history[0], temporary[0]
        np.multiply(velocity, np.float32(momentum), out=before)
        diff *= np.float32(rate)
        np.add(before, diff, out=velocity)
        np.multiply(velocity, np.float32(1 + momentum), out=diff)
        diff -= before
