"""The GPU engine: kernels of our own (cuda_kernels/) and cuBLAS, through PyCUDA.

Nothing is loaded until the first net prefers the engine: docs/gpu.md.
"""

from __future__ import annotations

from ...kernels import Engine, register_engine

NAME = "cuda"


def _load() -> None:
    from . import driver

    driver.load()
    from . import rows  # noqa: F401  (adds the rows)


def _describe() -> str:
    from . import driver

    return driver.describe()


register_engine(Engine(NAME, load=_load, describe=_describe))
