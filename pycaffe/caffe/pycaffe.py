"""The module that pycaffe kept its classes in; `caffe.Net` and its like are the same ones."""

from __future__ import annotations

from .nccl import NCCL as NCCL
from .net import Net as Net
from .solvers import AdaDeltaSolver as AdaDeltaSolver
from .solvers import AdaGradSolver as AdaGradSolver
from .solvers import AdamSolver as AdamSolver
from .solvers import NesterovSolver as NesterovSolver
from .solvers import RMSPropSolver as RMSPropSolver
from .solvers import SGDSolver as SGDSolver
from .timer import Timer as Timer
