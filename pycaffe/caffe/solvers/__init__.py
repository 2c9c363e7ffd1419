"""The solvers, one file each; importing this package registers them all."""

from .adadelta import AdaDeltaSolver as AdaDeltaSolver
from .adagrad import AdaGradSolver as AdaGradSolver
from .adam import AdamSolver as AdamSolver
from .nesterov import NesterovSolver as NesterovSolver
from .rmsprop import RMSPropSolver as RMSPropSolver
from .sgd import SGDSolver as SGDSolver
