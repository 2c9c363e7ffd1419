"""The CPU engine: Intel's oneDNN through its C API.

Nothing is loaded until the first net prefers the engine. See place.py for where arrays live, and
docs/add_an_engine.md for how the parts fit together.
"""

from __future__ import annotations

from ...kernels import Engine, register_engine

NAME = "onednn"


def _load() -> None:
    from . import library

    library.load()
    from . import kernels  # noqa: F401  (adds the rows)


def _describe() -> str:
    from . import library

    return library.describe()


register_engine(Engine(NAME, load=_load, describe=_describe))
