"""SolverFactory: `type: "..."` of a SolverParameter to the class that solves it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import SolverError, closest
from .proto import caffe_pb2
from .upgrade_proto import read_solver_upgraded, upgrade_solver

if TYPE_CHECKING:
    from .solver import Solver

_C = TypeVar("_C", bound="type[Solver]")

_solvers: dict[str, Any] = {}


def register_solver(type: str) -> Callable[[_C], _C]:
    """Class decorator: `type: "..."` in a solver prototxt makes this class."""

    def decorate(cls: _C) -> _C:
        if type in _solvers:
            raise SolverError(f"solver type '{type}' is registered already, by {_solvers[type].__qualname__}")
        cls.type = type
        _solvers[type] = cls
        return cls

    return decorate


def solver_type_list() -> list[str]:
    return sorted(_solvers)


def solver_class(type: str) -> type[Solver]:
    """Raises SolverError, in the original's words, for a type that nobody registered."""
    if type not in _solvers:
        raise SolverError(
            f"Unknown solver type: {type} (known types: {', '.join(solver_type_list())})"
            f"{closest(type, _solvers)}"
        )
    return _solvers[type]


def get_solver(param: str | Path | caffe_pb2.SolverParameter) -> Solver:
    """The solver that a solver prototxt (or message) asks for by its `type`."""
    if isinstance(param, caffe_pb2.SolverParameter):
        given, param = param, caffe_pb2.SolverParameter()
        param.CopyFrom(given)
        upgrade_solver(param, "")
    else:
        param = read_solver_upgraded(str(param))
    return solver_class(param.type)(param)
