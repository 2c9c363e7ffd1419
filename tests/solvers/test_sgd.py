"""SGD against its formula, and what all solvers take from it: rates, decay, clipping, engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from caffe.errors import SolverError
from caffe.solvers import sgd
from solvers.support import check, params, solver_of


def momentum(m: float):
    def update(g: np.ndarray, state: dict[str, Any], iteration: int, rate: float) -> np.ndarray:
        state["v"] = m * state.get("v", 0) + rate * g
        return state["v"]

    return update


@pytest.mark.parametrize("m", [0, 0.9])
def test_formula(engine: str, m: float) -> None:
    check(f"base_lr: 0.1 momentum: {m}", momentum(m), rate=lambda i: 0.1)


@pytest.mark.parametrize("kind", ["L1", "L2"])
def test_decay(engine: str, kind: str) -> None:
    check(
        f'base_lr: 0.1 momentum: 0.5 weight_decay: 0.3 regularization_type: "{kind}"',
        momentum(0.5),
        rate=lambda i: 0.1,
        decay=0.3,
        l1=kind == "L1",
    )


def test_rate_that_changes(engine: str) -> None:
    check(
        'base_lr: 0.2 momentum: 0.9 lr_policy: "step" gamma: 0.5 stepsize: 3',
        momentum(0.9),
        rate=lambda i: 0.2 * 0.5 ** (i // 3),
    )


def test_clipping_is_by_the_norm_over_all_parameters(engine: str) -> None:
    fields = "base_lr: 0.2 momentum: 0.9 weight_decay: 0.1 clip_gradients: 0.4"
    check(fields, momentum(0.9), rate=lambda i: 0.2, decay=0.1, clip=0.4)


def test_the_diff_is_the_update_afterwards(engine: str) -> None:
    solver = solver_of("base_lr: 0.1 momentum: 0.9 weight_decay: 0.01")
    solver.step(2)
    before = params(solver)
    solver.step(1)
    for old, p in zip(before, solver.net.learnable, strict=True):
        np.testing.assert_allclose(old - p.blob.diff, p.blob.data, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("type", ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"])
def test_the_size_of_chunks_changes_nothing(monkeypatch: pytest.MonkeyPatch, type: str) -> None:
    results = []
    for chunk in (4, 1 << 20):
        monkeypatch.setattr(sgd, "CHUNK", chunk)
        solver = solver_of(f'type: "{type}" base_lr: 0.1 weight_decay: 0.1 delta: 1e-3')
        solver.step(5)
        results.append(params(solver))
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("type", ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"])
def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch, type: str) -> None:
    monkeypatch.setattr(sgd, "PARALLEL", 1)
    monkeypatch.setattr(sgd, "CHUNK", 4)
    results = []
    for threads in (1, 2, 7):
        solver = solver_of(f'type: "{type}" base_lr: 0.1 weight_decay: 0.1 delta: 1e-3')
        solver.net.run.threads = threads
        solver.step(5)
        results.append(params(solver))
    for a, b, c in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


def test_a_fault_in_a_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sgd, "PARALLEL", 1)
    monkeypatch.setattr(sgd, "CHUNK", 4)
    solver = solver_of("base_lr: 0.1")
    solver.net.run.threads = 2

    def fail(*args: object) -> None:
        raise ArithmeticError

    solver.compute_update = fail
    with pytest.raises(ArithmeticError):
        solver.step(1)


def test_no_temporary_grows_with_the_parameter() -> None:
    import tracemalloc

    big = 'layer { name: "p" type: "Parameter" top: "p" parameter_param { shape { dim: 3000000 } } } '
    loss = 'layer { name: "l" type: "Reduction" bottom: "p" top: "l" loss_weight: 1 }'
    for type, histories in (("SGD", 1), ("Adam", 2)):
        solver = solver_of(f'type: "{type}" base_lr: 0.1 momentum: 0.9 weight_decay: 0.1', net=big + loss)
        solver.step(1)
        assert len(solver.history) == histories
        tracemalloc.start()
        solver.apply_update()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1_000_000


def test_views_of_diffs_that_a_script_writes_count(engine: str) -> None:
    solver = solver_of("base_lr: 1")
    solver.net.forward()
    solver.net.backward()
    diff, data = solver.net.params["ip"][1].diff, solver.net.params["ip"][1].data
    before = data.copy()
    diff[...] = 0.25
    solver.apply_update()
    np.testing.assert_allclose(data, before - 2 * 0.25, rtol=1e-6)


def test_refuses_an_unknown_regularization() -> None:
    with pytest.raises(SolverError, match="Unknown regularization type: l2; did you mean 'L2'"):
        solver_of('base_lr: 1 regularization_type: "l2"')
