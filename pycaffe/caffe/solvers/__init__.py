"""The solvers, one file each; importing this package registers them all."""

from .sgd import SGDSolver as SGDSolver
