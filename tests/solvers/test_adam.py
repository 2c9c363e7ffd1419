"""Adam against the paper's algorithm 1, with ε-hat as at the end of its section 2."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from caffe.errors import SolverError
from solvers.support import check, solver_of


@pytest.mark.parametrize(("beta1", "beta2", "delta"), [(0.9, 0.999, 1e-8), (0.5, 0.9, 1e-2), (0, 0.99, 1e-3)])
def test_formula(engine: str, beta1: float, beta2: float, delta: float) -> None:
    def update(g: np.ndarray, state: dict[str, Any], iteration: int, rate: float) -> np.ndarray:
        t = iteration + 1
        state["m"] = beta1 * state.get("m", 0) + (1 - beta1) * g
        state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * g**2
        mean, square = state["m"] / (1 - beta1**t), state["v"] / (1 - beta2**t)
        return rate * mean / (np.sqrt(square) + delta / np.sqrt(1 - beta2**t))

    check(
        f'type: "Adam" base_lr: 0.05 weight_decay: 0.05 momentum: {beta1} momentum2: {beta2} delta: {delta}',
        update,
        rate=lambda i: 0.05,
        decay=0.05,
    )


def test_means_come_before_squares() -> None:
    solver = solver_of('type: "Adam" base_lr: 0.1 momentum: 0.9 momentum2: 0.99')
    assert [h.shape for h in solver.history] == [(3, 5), (3,)] * 2
    solver.net.forward()
    solver.net.backward()
    grads = [p.blob.diff.copy() for p in solver.net.learnable]
    solver.apply_update()
    for i, g in enumerate(grads):
        np.testing.assert_allclose(solver.history[i].data, 0.1 * g, rtol=1e-5)
        np.testing.assert_allclose(solver.history[2 + i].data, 0.01 * g**2, rtol=1e-5)


@pytest.mark.parametrize("field", ["momentum: 1", "momentum: -0.5", "momentum2: 1", "momentum2: nan"])
def test_means_that_never_fade_are_refused(field: str) -> None:
    name, _, value = field.partition(": ")
    with pytest.raises(SolverError, match=f"Adam needs 0 <= {name} < 1, not {value}"):
        solver_of(f'type: "Adam" base_lr: 0.1 {field}')
