"""examples/from_python: each script does what it says, and the prototxts beside them say the same."""

from __future__ import annotations

import importlib.util
from itertools import islice
from pathlib import Path
from types import ModuleType

import h5py
import numpy as np
import pytest

import caffe

FOLDER = Path(__file__).parents[1] / "examples" / "from_python"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_toy_regression_and_its_prototxt() -> None:
    example = script("toy_regression")
    m = example.main()  # asserts that weights and bias are within 0.05
    found = list(islice(example.batches(), 100))
    with h5py.File("toy_data.h5", "w") as file:
        file["x"] = np.concatenate([x for x, _ in found])
        file["y"] = np.concatenate([y for _, y in found])
    Path("toy_data.txt").write_text("toy_data.h5\n")
    solver = caffe.get_solver(str(FOLDER / "toy_regression_solver.prototxt"))
    solver.solve()
    for ours, theirs in zip(m.parameters.values(), solver.net.params["prediction"], strict=True):
        np.testing.assert_array_equal(ours.data, theirs.data)


def test_lenet() -> None:
    m = script("lenet").main()
    assert m.minimizer.solver.history_of_run.tests[-1][1]["accuracy"] > 0.95
    solver = caffe.get_solver("solver.prototxt")
    solver.solve()
    for ours, theirs in zip(m.parameters.values(), solver.net.learnable, strict=True):
        np.testing.assert_array_equal(ours.data, theirs.blob.data)


def test_own_loop(capsys: pytest.CaptureFixture[str]) -> None:
    assert script("own_loop").main() < 0.5
    assert "quick brown fox" in capsys.readouterr().out


def test_the_tour_begins_with_a_program_that_runs() -> None:
    text = (FOLDER.parents[1] / "docs" / "from_python.md").read_text()
    code = text.partition("```python\n")[2].partition("```")[0]
    names: dict[str, object] = {}
    exec(code, names)
    assert names["history"].tests[-1][1]["accuracy"] > 0.95  # type: ignore[attr-defined]
    assert all(Path(name).is_file() for name in ("lenet.prototxt", "lenet.caffemodel", "solver.prototxt"))
