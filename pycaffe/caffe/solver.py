"""Solver: the loop that trains a net, tests it, reports, and writes snapshots."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np

from . import context, debug_info, resume_file, snapshot
from .blob import Blob
from .callbacks import SolverAction, SolverCallback
from .errors import CopyError, SnapshotError, SolverError
from .html_table import html_table
from .lr_policies import check_policy, learning_rate
from .net import TEST, TRAIN, Net
from .net_wiring import LearnableParam
from .proto import caffe_pb2
from .proto_text import write_text
from .solver_nets import test_net_definitions, train_net_definition
from .upgrade_proto import read_solver_upgraded, upgrade_solver

log = logging.getLogger("caffe.solver")


class Solver:
    """Trains a net by the recipe of a SolverParameter (path of a prototxt, or the message).

    net, test_nets: the nets, which share their parameters. iter: iterations done. lr: the rate of the
    coming iteration. param: the recipe, which may be changed while running (base_lr, display ...).
    last_snapshot: path of the latest .solverstate written, or "".

    A subclass says how a gradient becomes an update: `init_history` and `compute_update`.
    Raises SolverError for a recipe that cannot be run.
    """

    type: ClassVar[str] = ""

    def __init__(self, param: str | Path | caffe_pb2.SolverParameter):
        if isinstance(param, caffe_pb2.SolverParameter):
            self.param = caffe_pb2.SolverParameter()
            self.param.CopyFrom(param)
            upgrade_solver(self.param, "")
        else:
            self.param = read_solver_upgraded(str(param))
        if log.isEnabledFor(logging.INFO) and context.root_solver():
            log.info("Initializing solver from parameters: \n%s", write_text(self.param))
        if self.param.average_loss < 1:
            raise SolverError(
                f"average_loss should be non-negative and at least 1, not {self.param.average_loss}"
            )
        if self.param.iter_size < 1:
            raise SolverError(f"iter_size must be at least 1, not {self.param.iter_size}")
        check_policy(self.param)
        self.check_param()
        snapshot.check_writable(self.param)
        if context.root_solver():
            snapshot.remove_old_leftovers(self.param)
        if self.param.random_seed >= 0:
            context.set_random_seed(self.param.random_seed + context.solver_rank())
        self.iter = 0
        self.current_step = 0
        self.loss_window: deque[float] = deque(maxlen=self.param.average_loss)
        self.smoothed_loss = 0.0  # mean of the window, which a resumed run continues
        # The same over this run's losses only, as the original's log has it.
        self.reported_loss = 0.0
        self._losses_of_run = 0
        self.states_before_test: resume_file.NetStates | None = None  # while testing, and if interrupted
        self.stopped_early = False
        self.last_snapshot = ""
        self._snapshot_is_due = False  # the latest one on the way failed
        self._warned = False
        self.action: Callable[[], SolverAction] = lambda: SolverAction.NONE
        self._callbacks: list[SolverCallback] = []
        self._lap = (time.perf_counter(), 0)

        self.net: Net = self._train_net()
        self.test_nets: list[Net] = self._test_nets()
        self.history: list[Blob] = []
        self.init_history()
        if self.param.snapshot:
            snapshot.check_size(self)
        log.info("Solver scaffolding done.")

    # -- what a solver defines ------------------------------------------------------------------------

    def check_param(self) -> None:
        """Refuse fields that this solver cannot honour."""

    def init_history(self) -> None:
        """Make `history`: the blobs that snapshots keep beside the parameters."""

    def apply_update(self) -> None:
        """Turn the accumulated gradients into new parameters, and count the iteration."""
        raise NotImplementedError

    # -- nets ---------------------------------------------------------------------------------------------

    def _train_net(self) -> Net:
        definition = train_net_definition(self.param)
        log.info("Creating training net%s", definition.described)
        state = caffe_pb2.NetState(phase=TRAIN)
        state.MergeFrom(definition.param.state)
        state.MergeFrom(self.param.train_state)
        definition.param.state.CopyFrom(state)
        net = definition.build(TRAIN)
        self._load_weights(net)
        return net

    def _test_nets(self) -> list[Net]:
        nets = []
        for i, definition in enumerate(test_net_definitions(self.param)):
            log.info("Creating test net (#%d) specified by %s", i, definition.described)
            state = caffe_pb2.NetState(phase=TEST)
            state.MergeFrom(definition.param.state)
            if self.param.test_state:
                state.MergeFrom(self.param.test_state[i])
            definition.param.state.CopyFrom(state)
            net = definition.build(TEST)
            net.debug_info = self.param.debug_info
            self._load_weights(net)
            nets.append(net)
        for net in nets:
            net.share_with(self.net)
        return nets

    def _load_weights(self, net: Net) -> None:
        for entry in self.param.weights:
            for path in entry.split(","):
                log.info("Finetuning from %s", path.strip())
                net.copy_from(path.strip())

    # -- callbacks --------------------------------------------------------------------------------------

    def add_callback(
        self,
        on_start: SolverCallback | Callable[[], Any] | None = None,
        on_gradients_ready: Callable[[], Any] | None = None,
    ) -> None:
        """Add a SolverCallback, or two functions: before each iteration, and when its gradients are ready."""
        if isinstance(on_start, SolverCallback):
            self._callbacks.append(on_start)
            return
        callback = SolverCallback()
        if on_start is not None:
            callback.on_start = on_start  # type: ignore[method-assign]
        if on_gradients_ready is not None:
            callback.on_gradients_ready = on_gradients_ready  # type: ignore[method-assign]
        self._callbacks.append(callback)

    def _param_ready(self) -> Callable[[LearnableParam], None] | None:
        wanting = [
            c.on_param_gradient_ready
            for c in self._callbacks
            if type(c).on_param_gradient_ready is not SolverCallback.on_param_gradient_ready
        ]
        if not wanting:
            return None

        def ready(param: LearnableParam) -> None:
            for function in wanting:
                function(param)

        return ready

    # -- training -----------------------------------------------------------------------------------------

    @property
    def lr(self) -> float:
        """The learning rate of the coming iteration."""
        return float(np.float32(learning_rate(self.param, self.iter, self.current_step)[0]))

    @property
    def base_lr(self) -> float:
        return self.param.base_lr

    @base_lr.setter
    def base_lr(self, value: float) -> None:
        self.param.base_lr = value

    def step(self, iterations: int) -> None:
        """Train for this many iterations."""
        self._run(self.iter + int(iterations))

    def _run(self, stop: int) -> None:
        param = self.param
        self.loss_window = deque(self.loss_window, maxlen=max(1, param.average_loss))
        self._losses_of_run = 0
        self.states_before_test = None
        self._lap = (time.perf_counter(), self.iter)
        try:
            while self.iter < stop:
                self.net.clear_param_diffs()
                if (
                    param.test_interval
                    and self.iter % param.test_interval == 0
                    and (self.iter > 0 or param.test_initialization)
                ):
                    if context.root_solver():
                        self.test_all()
                    if self.stopped_early:
                        break
                for callback in self._callbacks:
                    callback.on_start()
                display = bool(param.display) and self.iter % param.display == 0
                self.net.debug_info = display and param.debug_info
                self._smooth(self._forward_backward())
                if display:
                    self._display()
                for callback in self._callbacks:
                    callback.on_gradients_ready()
                self.apply_update()
                request = self.action()
                if request is SolverAction.SNAPSHOT or (param.snapshot and self.iter % param.snapshot == 0):
                    if context.root_solver():
                        self._snapshot_on_the_way()
                if request is SolverAction.STOP:
                    self.stopped_early = True
                    break
        except BaseException as error:
            for callback in self._callbacks:
                callback.on_exception(error)
            raise

    def _forward_backward(self) -> float:
        net, passes = self.net, self.param.iter_size
        net.run.iteration, net.run.sub_iteration = self.iter, -1
        loss = 0.0
        for k in range(passes):
            loss += net.run_forward()
            net.run_backward(on_param_ready=self._param_ready() if k == passes - 1 else None)
        return loss / passes

    def _smooth(self, loss: float) -> None:
        # The mean is computed anew: a running sum never recovers from one huge loss.
        self.loss_window.append(loss)
        self._losses_of_run += 1
        losses = list(self.loss_window)
        self.smoothed_loss = sum(losses) / len(losses)
        recent = losses[-self._losses_of_run :]
        self.reported_loss = sum(recent) / len(recent)
        if not self._warned and not math.isfinite(loss):
            self._warned = True
            where = debug_info.first_nonfinite(self.net) or "all blobs are finite, but their sum is not"
            log.warning("Iteration %d: the loss is %g. It appears first in %s", self.iter, loss, where)

    def _look_at_parameters(self) -> None:
        """An engine's ReLU or MAX pooling may hide a nan from the loss (docs/differences.md)."""
        if not self._warned and (where := debug_info.nonfinite_parameter(self.net)):
            self._warned = True
            log.warning(
                "Iteration %d: not all parameters are finite. It appears first in %s", self.iter, where
            )

    def _display(self) -> None:
        self._look_at_parameters()
        now, (then, since) = time.perf_counter(), self._lap
        lapse = now - then
        log.info(
            "Iteration %d (%g iter/s, %gs/%d iters), loss = %g",
            self.iter,
            (self.iter - since) / (lapse or 1.0),
            lapse,
            self.param.display,
            self.reported_loss,
        )
        self._lap = (now, self.iter)
        for i, (name, value, weight) in enumerate(_outputs(self.net)):
            log.info("    Train net output #%d: %s = %g%s", i, name, value, _weighted(weight, value))

    def solve(self, resume_file: str | None = None) -> None:
        """Train until max_iter, from a solver state if one is given; then snapshot and test as the recipe
        says."""
        log.info("Solving %s", self.net.name)
        log.info("Learning Rate Policy: %s", self.param.lr_policy)
        self.stopped_early = False
        if resume_file:
            log.info("Restoring previous solver status from %s", resume_file)
            self.restore(resume_file)
        param = self.param
        if param.snapshot_after_train:
            snapshot.check_size(self)
        self._run(param.max_iter)
        written = param.snapshot and self.iter % param.snapshot == 0 and not self._snapshot_is_due
        if param.snapshot_after_train and not written:
            if context.root_solver():
                self.snapshot()
        if self.stopped_early:
            log.info("Optimization stopped early.")
            return
        if param.display and self.iter % param.display == 0:
            self.net.run.iteration, self.net.run.sub_iteration = self.iter, -1
            self._smooth(self.net.run_forward())
            log.info("Iteration %d, loss = %g", self.iter, self.reported_loss)
        if param.test_interval and self.iter % param.test_interval == 0:
            self.test_all()
        log.info("Optimization Done.")

    # -- testing ------------------------------------------------------------------------------------------

    def test_all(self) -> list[dict[str, np.ndarray]]:
        """Test every test net; returns, per net, {output: mean over test_iter batches}."""
        # A snapshot that is asked for meanwhile has the test of this iteration still before it.
        with contextlib.suppress(SnapshotError):  # which that snapshot will meet as well
            self.states_before_test = resume_file.net_states(self.test_nets, 1)
        results = []
        for i in range(len(self.test_nets)):
            if self.stopped_early:
                break
            results.append(self.test(i))
        if not self.stopped_early:
            self.states_before_test = None
        return results

    def test(self, index: int = 0) -> dict[str, np.ndarray]:
        """Run test net #index for its test_iter batches and log the mean of each output."""
        net, batches = self.test_nets[index], self.param.test_iter[index]
        log.info("Iteration %d, Testing net (#%d)", self.iter, index)
        net.share_with(self.net)
        sums: dict[str, np.ndarray] = {}
        loss = 0.0
        for _ in range(batches):
            request = self.action()
            while request is not SolverAction.NONE:
                if request is SolverAction.SNAPSHOT:
                    self._snapshot_on_the_way()
                else:
                    self.stopped_early = True
                    break
                request = self.action()
            if self.stopped_early:
                log.info("Test interrupted.")
                return {}
            loss += net.run_forward()
            for name in net.outputs:
                value = net.blobs[name].cpu_data().astype(np.float64)
                sums[name] = sums[name] + value if name in sums else value
        means = {name: total / batches for name, total in sums.items()}
        if self.param.test_compute_loss:
            log.info("Test loss: %g", loss / batches)
        weights, i = net.blob_loss_weights, 0
        for name in net.outputs:
            for value in means.get(name, np.zeros(0)).ravel():
                log.info(
                    "    Test net output #%d: %s = %g%s", i, name, value, _weighted(weights[name], value)
                )
                i += 1
        return means

    def share_weights(self, net: Net) -> None:
        """Let a net of one's own use the parameters that are trained here."""
        net.share_with(self.net)

    # -- snapshots ----------------------------------------------------------------------------------------

    def snapshot(self) -> str:
        """Write the net and the solver's state; returns the path of the .solverstate, which is also
        `last_snapshot` from then on. Raises SnapshotError."""
        self._snapshot_is_due = True
        self.last_snapshot = snapshot.write(self)
        self._snapshot_is_due = False
        return self.last_snapshot

    def _snapshot_on_the_way(self) -> None:
        """A full disk ends no training: the next snapshot may find room."""
        try:
            self.snapshot()
        except SnapshotError as error:
            log.warning("%s. Training goes on without this snapshot", error)

    def restore(self, path: str | Path) -> None:
        """Continue from a .solverstate (or .solverstate.h5)."""
        snapshot.restore(self, str(path))

    def __reduce__(self) -> NoReturn:
        raise CopyError(
            "a Solver cannot be copied or pickled: solver.snapshot() writes its state, and restore(file) of "
            "another solver of this recipe goes on from there"
        )

    def __repr__(self) -> str:
        return f"<caffe.{type(self).__name__} of '{self.net.name}' at iteration {self.iter}>"

    def _repr_html_(self) -> str:
        rows = [
            (type(self).__name__, self.net.name),
            ("iteration", f"{self.iter:,} of {self.param.max_iter:,}"),
            ("learning rate", f"{self.lr:g} ({self.param.lr_policy})"),
            ("loss", f"{self.smoothed_loss:g}" if self.loss_window else "not known yet"),
            ("test nets", str(len(self.test_nets))),
            ("last snapshot", self.last_snapshot or "none"),
        ]
        return html_table(rows)


def _outputs(net: Net) -> Iterator[tuple[str, float, float]]:
    weights = net.blob_loss_weights
    for name in net.outputs:
        for value in net.blobs[name].cpu_data().ravel():
            yield name, float(value), weights[name]


def _weighted(weight: float, value: float) -> str:
    return f" (* {weight:g} = {weight * value:g} loss)" if weight else ""


__all__ = ["Solver"]
