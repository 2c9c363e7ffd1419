"""The six solvers, one file each; importing this package registers them all."""

from . import sgd as sgd
