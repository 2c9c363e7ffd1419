"""Learning-rate policies: `lr_policy: "..."` of a solver, as functions of the iteration.

    fixed       base_lr
    step        base_lr · gamma^⌊iter / stepsize⌋
    exp         base_lr · gamma^iter
    inv         base_lr · (1 + gamma · iter)^-power
    multistep   base_lr · gamma^(number of stepvalues reached)
    poly        base_lr · (1 - iter / max_iter)^power
    sigmoid     base_lr / (1 + exp(-gamma · (iter - stepsize)))

Source: Caffe's SolverParameter documentation.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .errors import SolverError, closest
from .proto import caffe_pb2

# (param, iteration, current_step) -> (rate, current_step)
Policy = Callable[[caffe_pb2.SolverParameter, int, int], tuple[float, int]]

_policies: dict[str, Policy] = {}


def register_policy(name: str) -> Callable[[Policy], Policy]:
    """Make a policy available under `lr_policy: "name"`."""

    def decorate(policy: Policy) -> Policy:
        _policies[name] = policy
        return policy

    return decorate


def learning_rate(param: caffe_pb2.SolverParameter, iteration: int, current_step: int) -> tuple[float, int]:
    """The rate at this iteration, and the step that step-wise policies have reached."""
    return check_policy(param)(param, iteration, current_step)


def check_policy(param: caffe_pb2.SolverParameter) -> Policy:
    """The policy of this solver. Raises SolverError for an unknown one or one whose fields do not fit."""
    name = param.lr_policy
    policy = _policies.get(name)
    if policy is None:
        raise SolverError(
            f"Unknown learning rate policy: {name or '(lr_policy is not set)'}{closest(name, _policies)} "
            f"(known: {', '.join(sorted(_policies))})"
        )
    if name in ("step", "sigmoid") and param.stepsize <= 0:
        raise SolverError(f"lr_policy '{name}' needs stepsize > 0, not {param.stepsize}")
    if name in ("step", "exp", "inv", "multistep", "sigmoid") and param.gamma < 0:
        raise SolverError(f"lr_policy '{name}' needs gamma >= 0, not {param.gamma:g}")
    if name == "poly" and param.max_iter <= 0:
        raise SolverError(f"lr_policy 'poly' needs max_iter > 0, not {param.max_iter}")
    return policy


def _power(base: float, exponent: float) -> float:
    """As in C: infinity, where Python raises, for what is too large and for 0 to a negative power."""
    try:
        return base**exponent
    except (OverflowError, ZeroDivisionError):
        return math.inf


@register_policy("fixed")
def _fixed(param: caffe_pb2.SolverParameter, iteration: int, step: int) -> tuple[float, int]:
    return param.base_lr, step


@register_policy("step")
def _step(param: caffe_pb2.SolverParameter, iteration: int, step: int) -> tuple[float, int]:
    step = iteration // param.stepsize
    return param.base_lr * _power(param.gamma, step), step


@register_policy("exp")
def _exp(param: caffe_pb2.SolverParameter, iteration: int, step: int) -> tuple[float, int]:
    return param.base_lr * _power(param.gamma, iteration), step


@register_policy("inv")
def _inv(param: caffe_pb2.SolverParameter, iteration: int, step: int) -> tuple[float, int]:
    return param.base_lr * _power(1.0 + param.gamma * iteration, -param.power), step


@register_policy("multistep")
def _multistep(param: caffe_pb2.SolverParameter, iteration: int, step: int) -> tuple[float, int]:
    if step < len(param.stepvalue) and iteration >= param.stepvalue[step]:
        step += 1
    return param.base_lr * _power(param.gamma, step), step


@register_policy("poly")
def _poly(param: caffe_pb2.SolverParameter, iteration: int, step: int) -> tuple[float, int]:
    left = 1.0 - iteration / param.max_iter
    # Past max_iter a negative base has no real power; the original yields nan there and trains on it.
    return (param.base_lr * _power(left, param.power) if left >= 0 else 0.0), step


@register_policy("sigmoid")
def _sigmoid(param: caffe_pb2.SolverParameter, iteration: int, step: int) -> tuple[float, int]:
    exponent = -param.gamma * (iteration - param.stepsize)
    return (param.base_lr / (1.0 + math.exp(exponent)) if exponent < 700 else 0.0), step
