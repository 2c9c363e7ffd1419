"""The benchmark harness: order, medians, ratios. A clock of our own takes the place of time."""

from __future__ import annotations

import pytest

import harness


class Clock:
    """Time that passes only when a candidate says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_rounds_interleave_and_rotate(clock):
    order = []
    candidates = {name: lambda name=name: lambda: order.append(name) for name in "abc"}
    harness.compare(candidates, rounds=3, warm_up=1, clock=clock)
    assert "".join(order) == "abc" + "abc" + "bca" + "cab"


def test_set_up_and_warm_up_are_not_timed(clock):
    calls = []

    def make():
        clock.now += 1000

        def run():
            clock.now += 1000 if len(calls) < 2 else 3
            calls.append(None)

        return run

    result = harness.compare({"x": make}, rounds=4, warm_up=2, clock=clock)["x"]
    assert result.seconds == (3, 3, 3, 3)


def test_ratio_is_taken_round_by_round(clock):
    """A machine that becomes a hundred times slower half-way does not touch the ratio."""
    calls = []

    def taking(seconds):
        def make():
            def run():
                clock.now += seconds * (100 if len(calls) >= 6 else 1)
                calls.append(None)

            return run

        return make

    results = harness.compare({"a": taking(1), "b": taking(3)}, rounds=6, warm_up=0, clock=clock)
    assert results["b"].ratio(results["a"]) == pytest.approx(3)
    assert results["a"].ratio(results["a"]) == 1


def test_several_calls_per_round_count_as_one(clock):
    def make():
        def run():
            clock.now += 2

        return run

    assert harness.compare({"x": make}, rounds=2, calls=5, clock=clock)["x"].seconds == (2, 2)


def test_absent_candidate_is_reported_with_its_reason(clock):
    def absent():
        raise ImportError("No module named 'torch'")

    def make():
        def run():
            clock.now += 0.25

        return run

    results = harness.compare({"torch": absent, "ours": make}, rounds=3, clock=clock)
    text = harness.report("LeNet", results, baseline="torch")
    assert text.splitlines()[0] == "LeNet"
    assert "absent: No module named 'torch'" in text
    assert "250.000" in text
    text = harness.report("LeNet", results, baseline="ours")
    assert text.splitlines()[-1].split()[-1] == "1.000"


def test_machine_names_what_a_reader_needs(monkeypatch):
    monkeypatch.setenv("CAFFE_NUM_THREADS", "2")
    text = harness.machine()
    for word in ("date", "cpu", "cores usable", "memory", "Python", "numpy", "blas", "CAFFE_NUM_THREADS=2"):
        assert word in text
