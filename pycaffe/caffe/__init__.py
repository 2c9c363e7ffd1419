"""Caffe for today: nets, solvers and layers of BVLC Caffe 1.0, in Python.

    net = caffe.Net("deploy.prototxt", "weights.caffemodel", caffe.TEST)

`caffe.__version__` is the level of compatibility with the original; the distribution's own version is
`caffe.version.DISTRIBUTION`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import engines as engines
from . import layer_types as layer_types
from .blob import Blob as Blob
from .callbacks import SolverAction as SolverAction
from .callbacks import SolverCallback as SolverCallback
from .context import root_solver as root_solver
from .context import set_device as set_device
from .context import set_mode_cpu as set_mode_cpu
from .context import set_mode_gpu as set_mode_gpu
from .context import set_multiprocess as set_multiprocess
from .context import set_random_seed as set_random_seed
from .context import set_solver_count as set_solver_count
from .context import set_solver_rank as set_solver_rank
from .context import solver_count as solver_count
from .context import solver_rank as solver_rank
from .errors import CaffeError as CaffeError
from .layer import Layer as Layer
from .layer_registry import layer_type_list as layer_type_list
from .layer_registry import register_layer as register_layer
from .logs import init_log as init_log
from .logs import log as log
from .logs import set_logging_disabled as set_logging_disabled
from .net import Net as Net
from .net_spec import NetSpec as NetSpec
from .net_spec import layers as layers
from .net_spec import params as params
from .net_spec import to_proto as to_proto
from .proto.caffe_pb2 import TEST as TEST
from .proto.caffe_pb2 import TRAIN as TRAIN
from .solver import Solver as Solver
from .solver_registry import get_solver as get_solver
from .solver_registry import register_solver as register_solver
from .solvers import AdaDeltaSolver as AdaDeltaSolver
from .solvers import AdaGradSolver as AdaGradSolver
from .solvers import AdamSolver as AdamSolver
from .solvers import NesterovSolver as NesterovSolver
from .solvers import RMSPropSolver as RMSPropSolver
from .solvers import SGDSolver as SGDSolver
from .timer import Timer as Timer
from .version import __version__ as __version__

if TYPE_CHECKING:
    from . import _caffe as _caffe
    from . import classifier as classifier
    from . import detector as detector
    from . import io as io
    from . import models as models
    from . import pycaffe as pycaffe
    from .classifier import Classifier as Classifier
    from .detector import Detector as Detector
    from .nccl import NCCL as NCCL
    from .nccl import has_nccl as has_nccl
    from .sequential import Sequential as Sequential

# Imported when asked for, by name: the module, and what it is called there ("" for the module itself).
_LATER = {
    "Classifier": ("classifier", "Classifier"),
    "Detector": ("detector", "Detector"),
    "NCCL": ("nccl", "NCCL"),
    "Sequential": ("sequential", "Sequential"),
    "_caffe": ("_caffe", ""),
    "classifier": ("classifier", ""),
    "detector": ("detector", ""),
    "estimator": ("estimator", ""),
    "has_nccl": ("nccl", "has_nccl"),
    "io": ("io", ""),
    "model": ("model", ""),
    "models": ("models", ""),
    "pycaffe": ("pycaffe", ""),
    "sequential": ("sequential", ""),
}

__all__ = [
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "Blob",
    "CaffeError",
    "Classifier",
    "Detector",
    "Layer",
    "NCCL",
    "NesterovSolver",
    "Net",
    "NetSpec",
    "RMSPropSolver",
    "SGDSolver",
    "Sequential",
    "Solver",
    "SolverAction",
    "SolverCallback",
    "TEST",
    "TRAIN",
    "Timer",
    "__version__",
    "get_solver",
    "has_nccl",
    "init_log",
    "io",
    "layer_type_list",
    "layer_types",
    "layers",
    "log",
    "params",
    "register_layer",
    "register_solver",
    "root_solver",
    "set_device",
    "set_logging_disabled",
    "set_mode_cpu",
    "set_mode_gpu",
    "set_multiprocess",
    "set_random_seed",
    "set_solver_count",
    "set_solver_rank",
    "solver_count",
    "solver_rank",
    "to_proto",
]


def __getattr__(name: str) -> Any:
    """What `import caffe` leaves until it is asked for."""
    if name not in _LATER:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from importlib import import_module

    module, attribute = _LATER[name]
    found: Any = import_module(f"{__name__}.{module}")
    return getattr(found, attribute) if attribute else found
