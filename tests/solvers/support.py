"""A least-squares problem for solvers: the net that runs it, and the same in float64 loops over parameters.

The gradients of ½/N Σ|x·wᵀ + b - t|² have a closed form; a test gives the published formula of its solver as
a function of (gradient, state, iteration, rate), and compares what comes out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from google.protobuf import text_format

import caffe
from caffe.proto import caffe_pb2

N, INPUTS, OUTPUTS = 6, 5, 3
LR_MULT, DECAY_MULT = (1.0, 2.0), (1.0, 0.0)

NET = """
name: "least_squares"
layer { name: "data" type: "DummyData" top: "x" top: "t"
        dummy_data_param { shape { dim: %d dim: 5 } shape { dim: %d dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y"
        param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
        inner_product_param { num_output: 3 weight_filler { type: "gaussian" std: 0.5 }
                              bias_filler { type: "constant" value: 0.2 } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "t" top: "loss" }
"""

# update(gradient, state, iteration, rate): the update; state is a dict of its own for each parameter.
Update = Callable[[np.ndarray, dict[str, Any], int, float], np.ndarray]


def problem(batch: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.standard_normal((batch, INPUTS)).astype("f"), rng.standard_normal((batch, OUTPUTS)).astype("f")


def solver_of(fields: str, batch: int = N, net: str = NET) -> caffe.SGDSolver:
    """A solver of the problem, with its data in place."""
    param = text_format.Parse(fields, caffe_pb2.SolverParameter())
    if not param.HasField("net_param") and not param.HasField("net"):
        text_format.Parse(net % (batch, batch) if net == NET else net, param.net_param)
    if not param.lr_policy:
        param.lr_policy = "fixed"
    if not param.HasField("snapshot_prefix"):
        param.snapshot_prefix = "s"
    if not param.HasField("random_seed"):
        param.random_seed = 1
    solver = caffe.get_solver(param)
    if net == NET:
        x, t = problem(batch)
        solver.net.blobs["x"].data[...] = x
        solver.net.blobs["t"].data[...] = t
    return solver


def params(solver: caffe.SGDSolver) -> list[np.ndarray]:
    return [p.blob.data.copy() for p in solver.net.learnable]


def gradients(w: np.ndarray, b: np.ndarray, x: np.ndarray, t: np.ndarray) -> list[np.ndarray]:
    dy = (x @ w.T + b - t) / len(x)
    return [dy.T @ x, dy.sum(axis=0)]


def reference(
    start: list[np.ndarray],
    update: Update,
    iterations: int,
    *,
    rate: Callable[[int], float] = lambda iteration: 1.0,
    decay: float = 0.0,
    l1: bool = False,
    clip: float = 0.0,
    batch: int = N,
) -> list[np.ndarray]:
    """The parameters after so many iterations, in float64."""
    x, t = (a.astype(float) for a in problem(batch))
    values = [a.astype(float) for a in start]
    states: list[dict[str, Any]] = [{} for _ in values]
    for iteration in range(iterations):
        grads = gradients(*values, x, t)
        norm = np.sqrt(sum((g**2).sum() for g in grads))
        for i, g in enumerate(grads):
            if clip and norm > clip:
                g = g * clip / norm
            g = g + decay * DECAY_MULT[i] * (np.sign(values[i]) if l1 else values[i])
            values[i] = values[i] - update(g, states[i], iteration, rate(iteration) * LR_MULT[i])
    return values


def check(fields: str, update: Update, iterations: int = 8, tolerance: float = 2e-4, **options: Any) -> None:
    """Train by the solver and by the formula, and compare."""
    solver = solver_of(fields)
    start = params(solver)
    solver.step(iterations)
    wanted = reference(start, update, iterations, **options)
    for got, want, before in zip(params(solver), wanted, start, strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * np.abs(want).max())
        assert np.abs(got - before).max() > 1e-3, "the solver did not move"
