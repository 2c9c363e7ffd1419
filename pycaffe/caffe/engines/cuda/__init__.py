"""The GPU engine: kernels of our own (cuda_kernels/) and cuBLAS, through PyCUDA; and beside it cuDNN, an
engine of its own name for the layers that it computes as Caffe does.

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


def _load_cudnn() -> None:
    from . import driver

    driver.load()
    from . import cudnn

    cudnn.cudnn()
    from . import cudnn_convolution, cudnn_layers  # noqa: F401  (add the rows)


def _describe_cudnn() -> str:
    from . import cudnn

    return cudnn.describe()


register_engine(Engine(NAME, load=_load, describe=_describe))
register_engine(Engine("cudnn", load=_load_cudnn, describe=_describe_cudnn))
