"""The recorded layers with the threads of each block run backwards, and in a shuffled order.

A missing barrier gives other numbers in at least one of the three orders; mutation.py shows that.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import golden_vectors as golden
from conftest import use_gpu
from engines.cuda import support
from engines.cuda.test_rows import ON_GPU
from golden_vectors import Case
from test_golden_layers import test_layer as check_layer

REVERSED, SHUFFLED = 1, 2

# In the usual run those whose threads work together.
COOPERATING = (
    "Accuracy BatchNorm Bias ContrastiveLoss EuclideanLoss InnerProduct MVN PReLU Reduction Scale Softmax "
    "SoftmaxWithLoss"
).split()


def _cases() -> list[object]:
    cases, seen = [], set()
    for case in golden.cases("layers"):
        kind = case.path.parent.name
        if kind in ON_GPU:
            first = kind in COOPERATING and kind not in seen
            seen.add(kind)
            cases.append(pytest.param(case, id=str(case), marks=() if first else pytest.mark.full))
    return cases


@pytest.fixture(params=[REVERSED, SHUFFLED], ids=["reversed", "shuffled"])
def _order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    use_gpu()
    driver = support.emulated()
    monkeypatch.setenv("CAFFE_ENGINE", "cuda")
    driver.emulated_set_order(request.param, 7)
    yield
    driver.emulated_set_order(0, 0)


@pytest.mark.usefixtures("_order")
@pytest.mark.parametrize("case", _cases())
def test_layer_in_another_order(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    check_layer(case, "cuda", monkeypatch)
