"""Curves of trainings: the numbers behind them, and that pictures of them can be written."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import caffe
import caffe.plot
from caffe.errors import CaffeError
from caffe.log_file import TrainingLog

NET = """
name: "least squares"
layer { name: "d" type: "DummyData" top: "x"
        dummy_data_param { shape { dim: 2 dim: 3 } data_filler { value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 1
        weight_filler { type: "constant" value: 1 } } }
layer { name: "loss" type: "Reduction" bottom: "y" top: "loss" loss_weight: 1
        reduction_param { operation: SUMSQ } }
"""


@pytest.fixture
def solver() -> caffe.Solver:
    Path("net.prototxt").write_text(NET)
    Path("solver.prototxt").write_text(
        'net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" average_loss: 2 snapshot_prefix: "s"'
    )
    return caffe.get_solver("solver.prototxt")


def test_a_curve_follows_its_solver(solver: caffe.Solver) -> None:
    solver.step(1)
    curve = caffe.plot.LossCurve(solver)
    wanted = []
    for _ in range(3):
        solver.step(1)
        wanted.append(solver.smoothed_loss)
    assert curve.iterations == [1, 2, 3]
    assert curve.losses == wanted


def test_a_curve_is_written_as_a_picture(solver: caffe.Solver) -> None:
    pytest.importorskip("matplotlib")
    curve = caffe.plot.LossCurve(solver)
    solver.step(2)
    assert curve._repr_png_().startswith(b"\x89PNG")
    curve.save("curve.svg")
    assert "<svg" in Path("curve.svg").read_text()
    (line,) = curve.figure().axes[0].lines
    assert line.get_xdata().tolist() == curve.iterations
    with pytest.raises(CaffeError, match="cannot write"):
        curve.save("absent/curve.png")


def test_a_notebook_sees_it_grow(solver: caffe.Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[int] = []

    class Handle:
        def update(self, curve: caffe.plot.LossCurve) -> None:
            shown.append(len(curve.iterations))

    monkeypatch.setattr(caffe.plot, "_notebook_display", lambda curve: Handle())
    curve = caffe.plot.LossCurve(solver, seconds=1e9, every=2)
    solver.step(5)
    assert shown == [1, 3, 5]
    curve.update()
    assert shown[-1] == 5


@pytest.mark.parametrize("shell", [None, SimpleNamespace(), SimpleNamespace(kernel="a notebook's")])
def test_only_a_notebook_shows_it(
    solver: caffe.Solver, monkeypatch: pytest.MonkeyPatch, shell: SimpleNamespace | None
) -> None:
    """IPython in a terminal has no kernel."""
    shown: list[object] = []
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    display.display = lambda value, display_id: shown.append(value)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    curve = caffe.plot.LossCurve(solver)
    assert shown == ([curve] if hasattr(shell, "kernel") else [])


LOG = TrainingLog(
    train=[{"NumIters": i, "Seconds": 2 * i, "LearningRate": 0.1, "loss": 1 / (i + 1)} for i in range(4)],
    test=[{"NumIters": 0, "Seconds": 0, "LearningRate": 0.1, "loss": 2, "accuracy": 0.5}],
)


def test_several_logs_in_one_picture() -> None:
    pytest.importorskip("matplotlib")
    figure = caffe.plot.plot_logs({"a": LOG, "b": LOG}, x="Seconds")
    loss, accuracy = figure.axes
    assert [line.get_label() for line in loss.lines] == ["a (train)", "a (test)", "b (train)", "b (test)"]
    assert loss.lines[0].get_xdata().tolist() == [0, 2, 4, 6]
    assert [line.get_label() for line in accuracy.lines] == ["a (test)", "b (test)"]
    (rate,) = caffe.plot.plot_logs({"a": LOG}, names=["LearningRate"]).axes
    assert [line.get_label() for line in rate.lines] == ["a (train)"]
    caffe.plot.save_plot({"a": LOG}, "log.png", names=["loss"])
    assert Path("log.png").read_bytes().startswith(b"\x89PNG")


def test_names_that_no_log_has() -> None:
    with pytest.raises(CaffeError, match="the logs have no los; they have: NumIters.*accuracy"):
        caffe.plot.plot_logs({"a": LOG}, names=["los"])
    with pytest.raises(CaffeError, match="the logs have no outputs"):
        caffe.plot.plot_logs({"a": TrainingLog()})


def test_without_matplotlib(solver: caffe.Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    curve = caffe.plot.LossCurve(solver)
    solver.step(1)
    with pytest.raises(CaffeError, match=r"pip install 'pycaffe\[plot\]'"):
        curve.save("curve.png")
