"""What the original's compiled module offered, under its names: `from caffe._caffe import ...`."""

from __future__ import annotations

from .blob import Blob as Blob
from .context import set_device as set_device
from .context import set_mode_cpu as set_mode_cpu
from .context import set_mode_gpu as set_mode_gpu
from .context import set_multiprocess as set_multiprocess
from .context import set_random_seed as set_random_seed
from .context import set_solver_count as set_solver_count
from .context import set_solver_rank as set_solver_rank
from .context import solver_count as solver_count
from .context import solver_rank as solver_rank
from .layer import BlobVec as BlobVec
from .layer import Layer as Layer
from .layer_registry import layer_type_list as layer_type_list
from .logs import init_log as init_log
from .logs import log as log
from .logs import set_logging_disabled as set_logging_disabled
from .nccl import NCCL as NCCL
from .nccl import has_nccl as has_nccl
from .net import Net as Net
from .proto.caffe_pb2 import LayerParameter as LayerParameter
from .proto.caffe_pb2 import SolverParameter as SolverParameter
from .solver import Solver as Solver
from .solver_registry import get_solver as get_solver
from .solvers import AdaDeltaSolver as AdaDeltaSolver
from .solvers import AdaGradSolver as AdaGradSolver
from .solvers import AdamSolver as AdamSolver
from .solvers import NesterovSolver as NesterovSolver
from .solvers import RMSPropSolver as RMSPropSolver
from .solvers import SGDSolver as SGDSolver
from .timer import Timer as Timer
from .version import __version__ as __version__
