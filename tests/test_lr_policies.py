"""Learning-rate policies: closed forms, what they refuse, and steps that are passed."""

from __future__ import annotations

import math

import pytest
from google.protobuf import text_format

from caffe.errors import SolverError
from caffe.lr_policies import _policies, check_policy, learning_rate, register_policy
from caffe.proto import caffe_pb2


def param(fields: str) -> caffe_pb2.SolverParameter:
    return text_format.Parse(fields, caffe_pb2.SolverParameter())


def rates(fields: str, iterations: int) -> list[float]:
    """As a solver walks through them, which counts the steps."""
    recipe, step, found = param(fields), 0, []
    for i in range(iterations):
        rate, step = learning_rate(recipe, i, step)
        found.append(rate)
    return found


@pytest.mark.parametrize(
    ("fields", "closed"),
    [
        ('lr_policy: "fixed"', lambda i: 0.5),
        ('lr_policy: "step" gamma: 0.25 stepsize: 7', lambda i: 0.5 * 0.25 ** (i // 7)),
        ('lr_policy: "exp" gamma: 0.75', lambda i: 0.5 * 0.75**i),
        ('lr_policy: "inv" gamma: 0.125 power: 0.75', lambda i: 0.5 * (1 + 0.125 * i) ** -0.75),
        (
            'lr_policy: "multistep" gamma: 0.5 stepvalue: 3 stepvalue: 10 stepvalue: 11',
            lambda i: 0.5 * 0.5 ** ((i >= 3) + (i >= 10) + (i >= 11)),
        ),
        ('lr_policy: "poly" power: 2 max_iter: 30', lambda i: 0.5 * (1 - i / 30) ** 2),
        (
            'lr_policy: "sigmoid" gamma: 0.25 stepsize: 12',
            lambda i: 0.5 / (1 + math.exp(-0.25 * (i - 12))),
        ),
    ],
    ids=lambda x: x.split('"')[1] if isinstance(x, str) else "",
)
def test_closed_form(fields, closed) -> None:
    got = rates("base_lr: 0.5 " + fields, 30)
    assert got == pytest.approx([closed(i) for i in range(30)], rel=1e-6)


def test_extremes_are_finite() -> None:
    assert rates('base_lr: 1 lr_policy: "poly" power: 0.5 max_iter: 2', 5)[2:] == [0, 0, 0]
    assert rates('base_lr: 1 lr_policy: "sigmoid" gamma: 1000 stepsize: 3', 2) == [0, 0]


@pytest.mark.parametrize(
    ("fields", "last"),
    [
        ('lr_policy: "step" gamma: 1e30 stepsize: 1', math.inf),
        ('lr_policy: "exp" gamma: 1e30', math.inf),
        ('lr_policy: "inv" gamma: 1e30 power: -20', math.inf),
        ('lr_policy: "multistep" gamma: 1e30' + " stepvalue: 1" * 20, math.inf),
        ('lr_policy: "poly" power: -1 max_iter: 20', math.inf),
        ('lr_policy: "poly" power: 1e30 max_iter: 20', 0),
    ],
)
def test_what_is_too_large_is_infinite(fields: str, last: float) -> None:
    assert rates("base_lr: 1 " + fields, 21)[20] == last


def test_asking_for_a_rate_does_not_pass_a_step() -> None:
    recipe = param('base_lr: 1 lr_policy: "multistep" gamma: 0.5 stepvalue: 2')
    for _ in range(3):
        assert learning_rate(recipe, 2, 0) == (0.5, 1)


def test_the_first_rate_after_a_jump_counts_one_step() -> None:
    # The original counts the steps one by one, too: a state restored at iteration 9 has its own count.
    assert learning_rate(
        param('base_lr: 1 lr_policy: "multistep" gamma: 0.5 stepvalue: 2 stepvalue: 4'), 9, 0
    ) == (
        0.5,
        1,
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ('lr_policy: "stpe"', r"Unknown learning rate policy: stpe; did you mean 'step'"),
        ("", r"Unknown learning rate policy: \(lr_policy is not set\)"),
        ('lr_policy: "step" gamma: 0.1', "needs stepsize > 0, not 0"),
        ('lr_policy: "sigmoid" gamma: 0.1', "needs stepsize > 0, not 0"),
        ('lr_policy: "exp" gamma: -0.5', "needs gamma >= 0, not -0.5"),
        ('lr_policy: "poly" power: 1', "needs max_iter > 0, not 0"),
    ],
)
def test_refusals(fields: str, words: str) -> None:
    with pytest.raises(SolverError, match=words):
        check_policy(param(fields))


def test_a_policy_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caffe.lr_policies._policies", dict(_policies))

    @register_policy("warmup")
    def _warmup(param: caffe_pb2.SolverParameter, iteration: int, step: int) -> tuple[float, int]:
        return param.base_lr * min(1.0, (iteration + 1) / param.stepsize), step

    assert rates('base_lr: 2 lr_policy: "warmup" stepsize: 4', 6) == [0.5, 1, 1.5, 2, 2, 2]
