"""caffe train: train a model by its solver, anew, from weights, or on from a snapshot."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator

import click

from caffe.proto import caffe_pb2
from caffe.solver import Solver
from caffe.solver_registry import get_solver
from caffe.upgrade_proto import read_solver_upgraded

from .flags import Flags, brew_command, choose_device, device_list
from .memory import peak_memory_lines
from .signals import SignalHandler, effect

log = logging.getLogger("caffe.tools")


@brew_command(
    "train", "solver", "snapshot", "weights", "gpu", "level", "stage", "sigint_effect", "sighup_effect"
)
def command(flags: Flags) -> None:
    """Train or finetune the model of -solver.

    -weights begins with the parameters of trained models, copied by layer name; -snapshot goes on where
    a training stopped. Ctrl-C stops after the current iteration and writes a snapshot; a second one
    ends at once.
    """
    if not flags.solver:
        raise click.UsageError("Need a solver definition to train. (-solver FILE)")
    if flags.snapshot and flags.weights:
        raise click.UsageError("Give a snapshot to resume training or weights to finetune but not both.")
    sigint, sighup = (
        effect(flags.sigint_effect, "sigint_effect"),
        effect(flags.sighup_effect, "sighup_effect"),
    )
    param = _solver_param(flags)
    with _solver(param, flags) as solver:
        log.info("Starting Optimization")
        with SignalHandler(sigint, sighup) as signals, _progress_bar(solver):
            solver.action = signals.action
            solver.solve()
    log.info("Optimization Done.")
    for line in peak_memory_lines(solver.net):
        log.info("%s", line)
    _say_where(solver)


@contextlib.contextmanager
def _solver(param: caffe_pb2.SolverParameter, flags: Flags) -> Iterator[Solver]:
    """The solver, on the device or devices that the flags or the recipe choose."""
    devices = device_list(flags.gpu) if flags.gpu else []
    if len(devices) > 1:
        from .ranks import ranks

        with ranks(param, flags.snapshot, devices) as solver:
            yield solver
        return
    choose_device(
        flags.gpu,
        param.HasField("solver_mode") and param.solver_mode == caffe_pb2.SolverParameter.GPU,
        param.device_id,
    )
    solver = get_solver(param)
    # Nobody looks at gradients here, or at blobs that no layer needs any more: they share memory.
    solver.net.keep_diffs, solver.net.keep_blobs = False, solver.param.debug_info
    if flags.snapshot:
        log.info("Resuming from %s", flags.snapshot)
        solver.restore(flags.snapshot)
    yield solver


def _progress_bar(solver: Solver) -> contextlib.AbstractContextManager[object]:
    if sys.stderr is None or not sys.stderr.isatty():
        return contextlib.nullcontext()
    from .progress import ProgressBar

    return ProgressBar(solver)


def _solver_param(flags: Flags) -> caffe_pb2.SolverParameter:
    """The recipe, with what the flags change of it. The level stays as it is unless -level is given."""
    param = read_solver_upgraded(flags.solver)
    if flags.level is not None:
        param.train_state.level = flags.level
    if flags.stages:
        param.train_state.stage.extend(flags.stages)
    if flags.weights:
        param.weights.append(flags.weights)
    return param


def _say_where(solver: Solver) -> None:
    state = solver.last_snapshot
    if state:
        weights = ".caffemodel".join(state.rsplit(".solverstate", 1))
        log.info("The trained parameters are in %s; to train on: -snapshot %s", weights, state)
    else:
        log.info("No snapshot was written")
