"""Nesterov's accelerated gradient, in the form of Sutskever et al.: weights looked ahead to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solvers.support import check


@pytest.mark.parametrize("m", [0, 0.9])
def test_formula(engine: str, m: float) -> None:
    def update(g: np.ndarray, state: dict[str, Any], iteration: int, rate: float) -> np.ndarray:
        # The weights that are kept are those looked ahead to: w - m v. Step v, then look ahead again.
        v = state.get("v", np.zeros_like(g))
        state["v"] = m * v + rate * g
        return state["v"] + m * (state["v"] - v)

    check(
        f'type: "Nesterov" base_lr: 0.1 momentum: {m} weight_decay: 0.05',
        update,
        rate=lambda i: 0.1,
        decay=0.05,
    )
