"""The CPU engine: Intel's oneDNN through its C API.

Nothing is loaded until the first net prefers the engine. See place.py for where arrays live, and
docs/add_an_engine.md for how the parts fit together.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from ...kernels import End, Engine, Fused, register_engine
from ...synced_mem import SyncedMem

NAME = "onednn"


def _load() -> None:
    from . import library

    library.load()
    from . import kernels  # noqa: F401  (adds the rows)


def _describe() -> str:
    from . import library

    return library.describe()


def _fuse(steps: Sequence[Any], start: int) -> Fused | None:
    from . import fusion

    return fusion.fuse(steps, start)


def _repeat(runners: Sequence[Any], ends: Sequence[End], kept: Set[SyncedMem]) -> Fused:
    from . import repeated

    return repeated.Repeated(runners, ends, kept)


register_engine(Engine(NAME, load=_load, describe=_describe, fuse=_fuse, repeat=_repeat))
