"""AdaGrad against its formula, and its refusal of momentum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from caffe.errors import SolverError
from solvers.support import check, solver_of


@pytest.mark.parametrize("delta", [1e-8, 0.1])
def test_formula(engine: str, delta: float) -> None:
    def update(g: np.ndarray, state: dict[str, Any], iteration: int, rate: float) -> np.ndarray:
        state.setdefault("all", []).append(g)
        return rate * g / (np.sqrt(sum(old**2 for old in state["all"])) + delta)

    fields = f'type: "AdaGrad" base_lr: 0.1 weight_decay: 0.05 delta: {delta}'
    check(fields, update, rate=lambda i: 0.1, decay=0.05)


def test_refuses_momentum() -> None:
    with pytest.raises(SolverError, match=r"Momentum cannot be used with AdaGrad\."):
        solver_of('type: "AdaGrad" base_lr: 0.1 momentum: 0.9')
