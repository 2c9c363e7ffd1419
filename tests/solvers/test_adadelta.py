"""AdaDelta against Zeiler's algorithm 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solvers.support import check, solver_of


@pytest.mark.parametrize(("rho", "delta"), [(0.95, 1e-6), (0.5, 1e-2), (0, 1e-2)])
def test_formula(engine: str, rho: float, delta: float) -> None:
    def rms(mean: np.ndarray) -> np.ndarray:
        return np.sqrt(mean + delta)

    def update(g: np.ndarray, state: dict[str, Any], iteration: int, rate: float) -> np.ndarray:
        zero = np.zeros_like(g)
        state["g2"] = rho * state.get("g2", zero) + (1 - rho) * g**2
        step = rms(state.get("u2", zero)) / rms(state["g2"]) * g
        state["u2"] = rho * state.get("u2", zero) + (1 - rho) * step**2
        return rate * step

    fields = f'type: "AdaDelta" base_lr: 0.7 weight_decay: 0.05 momentum: {rho} delta: {delta}'
    check(fields, update, rate=lambda i: 0.7, decay=0.05)


def test_histories_of_gradients_come_before_those_of_updates() -> None:
    solver = solver_of('type: "AdaDelta" base_lr: 1 momentum: 0.9 delta: 1e-3')
    assert [h.shape for h in solver.history] == [(3, 5), (3,)] * 2
    solver.net.forward()
    solver.net.backward()
    grads = [p.blob.diff.copy() for p in solver.net.learnable]
    solver.apply_update()
    for history, g in zip(solver.history, grads, strict=False):
        np.testing.assert_allclose(history.data, 0.1 * g**2, rtol=1e-5)
