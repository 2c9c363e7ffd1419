"""Training a model: m.minimize says how, m.fit runs caffe's solver, Minimizer.step is for one's own loops."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import snapshot as snapshots
from ..callbacks import SolverCallback
from ..context import solver_rank
from ..execution import ExecutionContext
from ..net import TEST, TRAIN
from ..net_spec import assign_proto
from ..proto import caffe_pb2
from ..solver import Solver
from ..solver_registry import solver_class
from .definition import in_phase
from .graph import ModelError, Top
from .parameters import Arrays
from .running import ModelNet

if TYPE_CHECKING:
    from .model import Model

log = logging.getLogger("caffe.solver")

# Fields of SolverParameter that are not for m.minimize: the model knows its nets.
_NETS = ("net", "net_param", "train_net", "train_net_param", "test_net", "test_net_param", "solver_type")
_RATES = ("lr", "learning_rate")  # what others call base_lr


@dataclass
class History:
    """What a training has given. losses: of each iteration, the first being number `start`. tests:
    (iteration, {output: mean over the test batches})."""

    start: int = 0
    losses: list[float] = field(default_factory=list)
    tests: list[tuple[int, dict[str, float]]] = field(default_factory=list)

    def curve(self, output: str) -> tuple[list[int], list[float]]:
        """Iterations and values of a test output, for plotting."""
        points = [(i, values[output]) for i, values in self.tests if output in values]
        return [i for i, _ in points], [v for _, v in points]


class ModelSolver(Solver):
    """A solver whose nets are a model's. Made together with a solver type: see `solver_of`."""

    def __init__(self, param: caffe_pb2.SolverParameter, model: Model):
        self.model = model
        self.history_of_run = History()
        super().__init__(param)

    def _train_net(self) -> ModelNet:
        log.info("Creating training net of model '%s'", self.model.name)
        seed = self.model.seed + solver_rank()
        net = self.model.build(
            self.model.define("train"), TRAIN, ExecutionContext((seed, 0)), solver_net=True
        )
        self._load_weights(net)
        return net

    def _test_nets(self) -> list:
        return []

    def add_test_net(self, batches: int) -> None:
        """A test net, as the original makes it; or other batches for the one that there is."""
        if self.test_nets:
            self.param.test_iter[0] = batches
            return
        seed = self.model.seed + solver_rank()
        net = self.model.build(self.model.define("test"), TEST, ExecutionContext((seed, 1)))
        net.debug_info = self.param.debug_info
        self.test_nets.append(net)
        self.param.test_iter.append(batches)

    def test(self, index: int = 0) -> dict[str, np.ndarray]:
        means = super().test(index)
        if means:
            values = {name: float(value.mean()) for name, value in means.items()}
            self.history_of_run.tests.append((self.iter, values))
        return means


@cache
def solver_of(type_name: str) -> type[ModelSolver]:
    """The class that solves by this type's rule, on the nets of a model."""
    rule = solver_class(type_name)
    return type(f"Model{rule.__name__}", (ModelSolver, rule), {"__doc__": rule.__doc__, "type": rule.type})


class Minimizer:
    """How a model is trained: what m.minimize returns.

    param: the SolverParameter, without nets, which may be changed. solver: the caffe.Solver, made when it is
    first needed; made: it, or None so far. start: copies of the parameters with which the training began, by
    Values' keys; None while those are what the model draws. In a loop of one's own:

        out = net(batch); out.backward(); minimizer.step(); net.zero_grad()
    """

    def __init__(self, model: Model, param: caffe_pb2.SolverParameter):
        self.model, self.param = model, param
        self.made: ModelSolver | None = None
        self.start: Arrays | None = None
        self._multipliers = 0

    @property
    def solver(self) -> ModelSolver:
        if self.made is None:
            with self.model.settings():
                self.made = solver_of(self.param.type)(self.param, self.model)
            self.param = self.made.param
            self._multipliers = self.model.multipliers_set
        return self.made

    def begin(self) -> ModelSolver:
        """The solver, for the coming iteration. Before the first, the parameters are noted (see `start`).
        Raises ModelError for multipliers that were set too late."""
        drawn = self.made is None and not self.model.has_values
        solver = self.solver
        if solver.iter == 0:
            self.start = None if drawn else self.model.copy_values()
        if self._multipliers != self.model.multipliers_set:
            raise ModelError(
                "an lr_mult or decay_mult was set after the training began, and its solver does not know: "
                "call m.minimize(...) again, which keeps the parameters"
            )
        return solver

    @property
    def iter(self) -> int:
        """Updates so far."""
        return self.made.iter if self.made is not None else 0

    @property
    def lr(self) -> float:
        """The learning rate of the coming update."""
        return self.solver.lr

    def step(self) -> None:
        """Update the parameters by the gradients that backward passes have added up (iter_size of them), and
        count an iteration. The rate follows lr_policy."""
        self.begin().apply_update()
        for net in self.model.nets:
            net.run.iteration, net.run.sub_iteration = self.solver.iter, -1

    def zero_grad(self) -> None:
        """Set the gradients of all parameters to zero."""
        self.solver.net.clear_param_diffs()

    def snapshot(self) -> str:
        """Write .caffemodel, resume file and .solverstate; returns the path of the last."""
        return self.solver.snapshot()

    def restore(self, path: str) -> None:
        """Go on from a .solverstate."""
        self.solver.restore(path)

    def __repr__(self) -> str:
        return f"<caffe.model.Minimizer {self.param.type} of '{self.model.name}' at iteration {self.iter}>"


def minimizer(
    model: Model, loss: Top | Mapping[Top, float] | Iterable[Top] | None, type: str, fields: Mapping[str, Any]
) -> Minimizer:
    """See Model.minimize."""
    if not isinstance(type, str):
        raise ModelError(f"minimize: the solver's type must be a str, such as 'SGD', not {type!r:.60}")
    solver_class(type)  # raises for an unknown one, here
    param = caffe_pb2.SolverParameter(type=type)
    for key, value in fields.items():
        if key in _RATES:
            raise ModelError(f"minimize: the learning rate is called base_lr here, not {key}")
        if key in _NETS:
            raise ModelError(f"minimize: '{key}' is not for a model, which knows its nets")
        assign_proto(param, key, value)
    if not param.HasField("lr_policy"):
        param.lr_policy = "fixed"
    if not param.HasField("base_lr"):
        raise ModelError("minimize needs base_lr, the learning rate")
    gpu = model.device is not None and model.device != "cpu"
    param.solver_mode = caffe_pb2.SolverParameter.GPU if gpu else caffe_pb2.SolverParameter.CPU
    if loss is not None:
        _weigh(model, loss)
    return Minimizer(model, param)


def _weigh(model: Model, loss: Top | Mapping[Top, float] | Iterable[Top]) -> None:
    """Let these tops be the objective, and no others."""
    tops = model.own_tops("minimize: the losses", loss)
    if isinstance(loss, Mapping):
        weights = dict(loss)
    else:
        weights = dict.fromkeys(tops, 1.0)
        # Weights that the layer functions were given stay.
        for top in weights:
            given = top.layer.definition.loss_weight
            if len(given) > top.index and given[top.index]:
                weights[top] = given[top.index]
    trained = set(in_phase(model.layers, TRAIN))
    for top in tops:
        if not trained.intersection(top.producers):
            raise top.layer.error("it is for testing only, and gives nothing to minimize in training")
    for call in model.layers:
        now = [weights.get(top, 0.0) for top in call.tops]
        usual = [1.0 if call.type.endswith("Loss") and i == 0 else 0.0 for i in range(len(now))]
        before = list(call.definition.loss_weight)
        if now != (before or usual):
            del call.definition.loss_weight[:]
            if now != usual:
                call.definition.loss_weight.extend(now)
            model.changed()


def counted(what: str, value: Any, least: int) -> int:
    """An int. Raises ModelError for what is none, or less than `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ModelError(f"{what} must be an integer of {least} or more, not {value!r:.60}")
    return int(value)


class _Losses(SolverCallback):
    """Notes the loss of each iteration."""

    def __init__(self, solver: ModelSolver):
        self._window, self._losses = solver, solver.history_of_run.losses

    def on_gradients_ready(self) -> None:
        self._losses.append(self._window.loss_window[-1])


def fit(
    model: Model,
    iterations: int,
    *,
    test_every: int,
    test_batches: int | None,
    display: int | None,
    snapshot: int,
    snapshot_prefix: str,
    resume: str,
    callbacks: Iterable[SolverCallback],
    progress: bool | None,
) -> History:
    """See Model.fit."""
    iterations = counted("fit: iterations", iterations, 0)
    test_every, snapshot = counted("fit: test_every", test_every, 0), counted("fit: snapshot", snapshot, 0)
    if test_batches is not None:
        test_batches = counted("fit: test_batches", test_batches, 1)
    solver = model.minimizer.begin()
    param = solver.param
    if not any(solver.net.blob_loss_weights.values()):
        raise ModelError("fit: the training net has no loss, so that nothing would be learned")
    if resume:
        solver.restore(resume)
    if display is not None:
        param.display = display
    if test_every or param.test_interval:
        param.test_interval = test_every or param.test_interval
        with model.settings():
            solver.add_test_net(test_batches or model.count_test_batches())
    if snapshot:
        param.snapshot = snapshot
    if snapshot_prefix:
        param.snapshot_prefix = snapshot_prefix
    # Here, but not in `caffe train`, a training whose snapshots nobody asked for leaves none.
    silent = not param.HasField("snapshot_after_train")
    if silent:
        param.snapshot_after_train = bool(snapshot_prefix or param.snapshot)
    if param.snapshot_after_train and not param.snapshot_prefix:
        param.snapshot_prefix = model.name or "model"
    snapshots.check_writable(param)
    param.max_iter = solver.iter + iterations if not resume else max(iterations, solver.iter)
    solver.history_of_run = history = History(solver.iter)
    # A callback of this run only: the list is put back.
    mine = list(solver._callbacks)
    try:
        solver.add_callback(_Losses(solver))
        for callback in callbacks:
            solver.add_callback(callback)
        with _bar(solver, progress):
            solver.solve()
    finally:
        solver._callbacks[:] = mine
        if silent:
            param.ClearField("snapshot_after_train")
    return history


def _bar(solver: Solver, wanted: bool | None) -> Any:
    from contextlib import nullcontext

    if wanted is None:
        wanted = sys.stderr is not None and sys.stderr.isatty()
    if not wanted:
        return nullcontext()
    from ..progress import ProgressBar

    return ProgressBar(solver)
