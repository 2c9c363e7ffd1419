"""What every test gets: a folder of its own, fixed random numbers, the process's settings put back.

Fixtures: `engine` (run the test once per engine), `golden` (the recorded vectors' folder), `rng`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

import fake_engine
from caffe import context, kernels
from cuda_emulation import emulation

SEED = 1701

# An engine joins here; its test bodies are there already.
ENGINES = (kernels.REFERENCE, fake_engine.ENGINE, "onednn", "cuda")

# Repeatable and bounded; `scripts/test full` looks further.
settings.register_profile("usual", derandomize=True, max_examples=50, deadline=None, database=None)
settings.register_profile("full", parent=settings.get_profile("usual"), max_examples=1000)
settings.load_profile("usual")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the engine that nets built in this test prefer: the test runs once for each.

    Where an engine cannot run, the test is skipped with the reason and cure that the engine gives.
    """
    name: str = request.param
    if name == "cuda":
        use_gpu()
    if not kernels.engine_ready(name):
        pytest.skip(kernels.engine_reason(name))
    monkeypatch.setenv("CAFFE_ENGINE", name)
    return name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The mark `gpu`: tests of the GPU engine, and those that run once per engine, on it."""
    for item in items:
        call = getattr(item, "callspec", None)
        if item.path.parent.name == "cuda" or (call is not None and call.params.get("engine") == "cuda"):
            item.add_marker(pytest.mark.gpu)


def use_gpu() -> None:
    """Use the GPU here, or else the emulated one; skip the test where there is neither."""
    if not emulation.real_gpu():
        reason = emulation.activate()
        if reason:
            pytest.skip(reason)
    import caffe.engines  # noqa: F401


@pytest.fixture
def golden() -> Path:
    """The folder of the recorded vectors; treat it as read-only."""
    return Path(__file__).parent / "golden"


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers that are the same in every run."""
    return np.random.default_rng(SEED)


@pytest.fixture(scope="session")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _isolated(tmp_path: Path, _cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test works in its own folder, starts from the same seeds, and leaves no setting behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(_cache))
    random.seed(SEED)
    np.random.seed(SEED)
    context.set_random_seed(SEED)
    yield
    context.set_mode_cpu()
    context.set_device(0)
    context.set_solver_rank(0)
    context.set_solver_count(1)
