"""The comparison with recorded vectors sees what it should see, and excuses nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import golden_vectors as golden
from golden_vectors import Comparison, disagreement

NAN, INF = np.nan, np.inf
LOWEST = -3.4028235e38  # what the original's pooling writes for an empty window


@pytest.mark.parametrize(
    ("got", "wanted"),
    [
        ([1.0, 2.0], [1.0, 2.0]),
        ([1.0009], [1.0]),
        ([1000.9], [1000.0]),  # relative
        ([0.0009, 1.0], [0.0, 1.0]),  # absolute, below one
        ([0.09, 100.0], [0.0, 100.0]),  # absolute, scaled by the largest
        ([NAN, INF, -INF, 1.0], [NAN, INF, -INF, 1.0]),
        ([LOWEST, 1.0], [LOWEST, 1.0]),
        (np.zeros((0, 3)), np.zeros((0, 3))),
        (2.0, 2.0),
    ],
)
def test_agreement(got, wanted):
    assert disagreement(got, wanted, rtol=1e-3, atol=1e-3) == ""


@pytest.mark.parametrize(
    ("got", "wanted"),
    [
        ([1.0021], [1.0]),
        ([0.0, 1.0, 1.0], [0.0, 1.0, 1.01]),
        ([NAN, 1.0], [1.0, 1.0]),
        ([1.0, 1.0], [NAN, 1.0]),
        ([INF, 1.0], [1.0, 1.0]),
        ([1.0, INF], [1.0, -INF]),
        ([0.1, LOWEST], [0.0, LOWEST]),  # a sentinel must not widen the tolerance of the others
        ([[1.0, 2.0]], [1.0, 2.0]),
        ([1.0], 1.0),
    ],
)
def test_disagreement(got, wanted):
    assert disagreement(got, wanted, rtol=1e-3, atol=1e-3) != ""


def test_every_fault_of_a_case_is_shown():
    with pytest.raises(
        AssertionError, match=r"(?s)first: 1 of 1 numbers differ.*third: 'a', the original has 'b'"
    ):
        with Comparison() as compare:
            compare("first", [1.0], [2.0], rtol=0, atol=0)
            compare("second", [1.0], [1.0], rtol=0, atol=0)
            compare.equal("third", "a", "b")


def test_an_error_inside_is_not_hidden_by_a_fault():
    with pytest.raises(KeyError), Comparison() as compare:
        compare("first", [1.0], [2.0], rtol=0, atol=0)
        raise KeyError("what really happened")


def test_every_record_is_found():
    """An empty section would pass without a word."""
    recorded = {"layers": 500, "nets": 21, "data": 57, "solvers": 50, "models": 7, "rejects": 84}
    assert {section: len(golden.cases(section)) for section in recorded} == recorded
