"""RMSProp against its formula, and its refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from caffe.errors import SolverError
from solvers.support import check, solver_of


@pytest.mark.parametrize(("decay", "delta"), [(0.99, 1e-8), (0.5, 0.1), (0, 1e-3)])
def test_formula(engine: str, decay: float, delta: float) -> None:
    def update(g: np.ndarray, state: dict[str, Any], iteration: int, rate: float) -> np.ndarray:
        state["mean"] = decay * state.get("mean", 0) + (1 - decay) * g**2
        return rate * g / (np.sqrt(state["mean"]) + delta)

    fields = f'type: "RMSProp" base_lr: 0.02 weight_decay: 0.05 rms_decay: {decay} delta: {delta}'
    check(fields, update, rate=lambda i: 0.02, decay=0.05)


def test_refuses_momentum() -> None:
    with pytest.raises(SolverError, match=r"Momentum cannot be used with RMSProp\."):
        solver_of('type: "RMSProp" base_lr: 0.1 momentum: 0.9')


@pytest.mark.parametrize("decay", [-0.1, 1])
def test_refuses_a_decay_outside_its_range(decay: float) -> None:
    with pytest.raises(SolverError, match=r"rms_decay should lie between 0 and 1"):
        solver_of(f'type: "RMSProp" base_lr: 0.1 rms_decay: {decay}')
