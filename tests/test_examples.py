"""Every script in examples/ runs, on the digits, and shows what it says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script that the test is named after, imported from its file."""
    name = request.node.name.removeprefix("test_")
    monkeypatch.syspath_prepend(EXAMPLES)
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def test_classification(example: ModuleType) -> None:
    assert example.main(iterations=150) >= 0.8


def test_learning_lenet(example: ModuleType) -> None:
    first, *_, last = example.main(iterations=76)
    assert first < 0.3 and last > 0.75


def test_logistic_regression(example: ModuleType) -> None:
    straight, bent = example.main(iterations=400)
    assert bent > 0.85 > straight + 0.1


def test_fine_tuning(example: ModuleType) -> None:
    tuned, scratch = example.main()
    assert tuned > scratch + 0.05


def test_net_surgery(example: ModuleType) -> None:
    read = example.main(iterations=150)
    assert sum(a == b for a, b in zip(read, [8, 6, 4, 3, 6], strict=True)) >= 4


def test_siamese(example: ModuleType) -> None:
    assert example.main(iterations=200) > 0.75


def test_python_data_layer(example: ModuleType) -> None:
    before, after = example.main(iterations=150)
    assert before < 0.81 < 0.87 < after


def test_fcn_surgery(example: ModuleType) -> None:
    before, after = example.main(iterations=80)
    assert before < 0.5 and after > 0.8


def test_every_example_is_run_and_listed() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == {name.removeprefix("test_") for name in globals() if name.startswith("test_")} - {
        "every_example_is_run_and_listed"
    }
    readme = (EXAMPLES / "readme.md").read_text()
    assert all(f"[{name}.py]({name}.py)" in readme for name in names)
