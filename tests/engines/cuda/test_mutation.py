"""Each barrier in turn is removed: the recorded layers must notice, in one order of threads at least."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import golden_vectors as golden
from caffe.errors import EngineError
from caffe.resources import data_path
from conftest import use_gpu
from engines.cuda import support
from engines.cuda.test_orders import COOPERATING
from test_golden_layers import test_layer as check_layer

BARRIER = "__syncthreads();"
FORWARD, REVERSED, SHUFFLED = range(3)


def _barriers() -> list[tuple[str, int]]:
    """(file, which of its barriers)"""
    texts = {p.name: p.read_text(encoding="utf-8") for p in sorted(data_path("cuda_kernels").iterdir())}
    return [(name, i) for name, text in texts.items() for i in range(text.count(BARRIER))]


@pytest.fixture
def mutated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the kernels, which the engine uses until the test ends."""
    use_gpu()
    support.emulated()
    from caffe.engines.cuda import compiler

    folder = tmp_path / "cuda_kernels"
    shutil.copytree(compiler.folder(), folder)
    monkeypatch.setattr(compiler, "folder", lambda: folder)
    monkeypatch.setenv("CAFFE_ENGINE", "cuda")
    compiler.module.cache_clear()
    yield folder
    compiler.module.cache_clear()
    support.emulated().emulated_set_order(FORWARD, 0)


@pytest.mark.full
@pytest.mark.parametrize(("name", "which"), _barriers())
def test_a_missing_barrier_is_noticed(
    name: str, which: int, mutated: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = (mutated / name).read_text(encoding="utf-8").split(BARRIER)
    before, after = BARRIER.join(parts[: which + 1]), BARRIER.join(parts[which + 1 :])
    (mutated / name).write_text(before + after, encoding="utf-8")
    noticed = []
    for case in golden.cases("layers"):
        if case.path.parent.name in COOPERATING:
            for order in (FORWARD, REVERSED, SHUFFLED):
                support.emulated().emulated_set_order(order, 7)
                try:
                    check_layer(case, "cuda", monkeypatch)
                except (AssertionError, EngineError):
                    noticed.append((str(case), ("forward", "reversed", "shuffled")[order]))
    by_order = {order: sum(o == order for _, o in noticed) for _, order in noticed}
    with capsys.disabled():
        print(f"\n{name}, barrier {which + 1}: noticed by {by_order or 'nothing'}")
    assert noticed
