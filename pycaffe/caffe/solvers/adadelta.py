"""AdaDelta: steps in the units of the weights, without a global rate."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..solver_registry import register_solver
from .sgd import SGDSolver


@register_solver("AdaDelta")
class AdaDeltaSolver(SGDSolver):
    """S ← μ · S + (1 - μ) · g²;  u = g · √((U + delta) / (S + delta));  U ← μ · U + (1 - μ) · u²;
    W ← W - lr · u.

    S, U: two history blobs per parameter, all S before all U; g as in SGDSolver.
    μ is momentum (default 0; the paper uses 0.95), delta (default 1e-8; the paper uses 1e-6) sets the
    size of the first steps, base_lr is 1 in the paper.
    Source: Zeiler, ADADELTA: An Adaptive Learning Rate Method (2012).
    """

    histories: ClassVar[int] = 2

    def compute_update(
        self, diff: np.ndarray, history: list[np.ndarray], rate: float, temporary: np.ndarray
    ) -> None:
        momentum, delta = self.param.momentum, np.float32(self.param.delta)
        keep, new = np.float32(momentum), np.float32(1 - momentum)
        squares, updates = history
        work, ratio = temporary
        np.multiply(diff, diff, out=work)
        work *= new
        squares *= keep
        squares += work
        np.add(updates, delta, out=ratio)
        np.add(squares, delta, out=work)
        ratio /= work
        np.sqrt(ratio, out=ratio)
        diff *= ratio
        np.multiply(diff, diff, out=work)
        work *= new
        updates *= keep
        updates += work
        diff *= np.float32(rate)
