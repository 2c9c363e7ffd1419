"""Stochastic gradient descent with momentum, and the update loop that all solvers share."""

from __future__ import annotations

import logging
import math
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np

from .. import context
from ..blob import Blob
from ..errors import SolverError, closest
from ..kernels import UpdateKernel, find, preferences
from ..lr_policies import learning_rate
from ..net_wiring import LearnableParam
from ..solver import Solver
from ..solver_registry import register_solver

log = logging.getLogger("caffe.solver")

# Elements that are updated at once: what the update touches stays in the cache, and no temporary grows
# with the parameter.
CHUNK = 32768
# Elements for which starting threads pays.
PARALLEL = 1 << 20


@register_solver("SGD")
class SGDSolver(Solver):
    """V ← momentum · V + lr · g;  W ← W - V.

    V: one history blob per parameter. g is the gradient after clipping (by the global L2 norm), division by
    iter_size, and L2 or L1 decay; lr and decay are scaled by each parameter's lr_mult and decay_mult.
    Afterwards a parameter's diff holds the update that was subtracted, as in the original.
    momentum (default 0) in [0, 1).
    Other solvers derive from this one: each says how many histories it keeps, and its `compute_update`.
    Raises SolverError for an unknown regularization_type.
    Source: Bottou, Stochastic Gradient Descent Tricks (2012); Caffe's solver documentation.
    """

    # History blobs per parameter: of all parameters the first, then of all parameters the second.
    histories: ClassVar[int] = 1

    def check_param(self) -> None:
        name = self.param.regularization_type
        if name not in ("L1", "L2"):
            raise SolverError(
                f"Unknown regularization type: {name}{closest(name, ('L1', 'L2'))} (known: L1, L2)"
            )

    def init_history(self) -> None:
        learnable = self.net.learnable
        self.history = [Blob(p.blob.shape) for _ in range(self.histories) for p in learnable]
        self._histories = [self.history[i :: len(learnable)] for i in range(len(learnable))]
        row = find(self.type, preferences())
        kernel = row(self) if row is not None else None
        self._kernels: list[UpdateKernel | None] = [
            kernel if kernel is not None and kernel.supports(p, h) else None
            for p, h in zip(learnable, self._histories, strict=True)
        ]

    def apply_update(self) -> None:
        param, learnable = self.param, self.net.learnable
        rate, step = learning_rate(param, self.iter, self.current_step)
        rate = float(np.float32(rate))
        if step != self.current_step and param.lr_policy == "multistep":
            log.info("MultiStep Status: Iteration %d, step = %d", self.iter, step)
        self.current_step = step
        if param.display and self.iter % param.display == 0 and context.root_solver():
            log.info("Iteration %d, lr = %g", self.iter, rate)
        for p in learnable:  # arrays of diffs or parameters that a script holds may have been written
            p.blob.data_mem.host_written()
            p.blob.diff_mem.host_written()
        self.clip_gradients(learnable)
        scale = 1.0 / param.iter_size
        for p, history, kernel in zip(learnable, self._histories, self._kernels, strict=True):
            update = self.update if kernel is None else kernel.update
            update(p, history, scale, param.weight_decay * p.decay_mult, rate * p.lr_mult)
        self.net.refresh_views()
        self.iter += 1

    def update(
        self, param: LearnableParam, history: list[Blob], scale: float, decay: float, rate: float
    ) -> None:
        """Normalise, regularise and update one parameter on the host."""
        data = param.blob.mutable_cpu_data().reshape(-1)
        diff = param.blob.mutable_cpu_diff().reshape(-1)
        past = [h.mutable_cpu_data().reshape(-1) for h in history]
        self.update_flat(data, diff, past, scale, decay, rate)

    def update_flat(
        self,
        data: np.ndarray,
        diff: np.ndarray,
        past: list[np.ndarray],
        scale: float,
        decay: float,
        rate: float,
    ) -> None:
        """update, on flat arrays whose elements are in one order, whichever it is: chunk by chunk, and large
        ones in several threads, which changes no bit."""
        threads = self.net.run.threads if data.size >= PARALLEL else 1
        scratch = self.net.run.scratch("solver", (threads, 2, min(CHUNK, data.size)))
        if data.size <= CHUNK:
            self._update_chunk(data, diff, past, scratch[0], scale, decay, rate)
            return
        chunks = [slice(start, start + CHUNK) for start in range(0, data.size, CHUNK)]

        def work(thread: int) -> None:
            for part in chunks[thread::threads]:
                history = [h[part] for h in past]
                self._update_chunk(data[part], diff[part], history, scratch[thread], scale, decay, rate)

        if threads == 1:
            work(0)
        else:
            with ThreadPoolExecutor(threads) as pool:  # made anew each time, so that no fork inherits it
                list(pool.map(work, range(threads)))

    def _update_chunk(
        self,
        data: np.ndarray,
        diff: np.ndarray,
        history: list[np.ndarray],
        scratch: np.ndarray,
        scale: float,
        decay: float,
        rate: float,
    ) -> None:
        temporary = scratch[:, : data.size]
        if scale != 1.0:
            diff *= np.float32(scale)
        if decay:
            if self.param.regularization_type == "L1":
                np.sign(data, out=temporary[0])
                temporary[0] *= np.float32(decay)
            else:
                np.multiply(data, np.float32(decay), out=temporary[0])
            diff += temporary[0]
        self.compute_update(diff, history, rate, temporary)
        data -= diff

    def compute_update(
        self, diff: np.ndarray, history: list[np.ndarray], rate: float, temporary: np.ndarray
    ) -> None:
        """Replace the gradient in diff by the update, and renew the history. All are of one chunk;
        temporary: (2, n) of scratch."""
        velocity = history[0]
        diff *= np.float32(rate)
        velocity *= np.float32(self.param.momentum)
        velocity += diff
        diff[...] = velocity

    def clip_gradients(self, learnable: list[LearnableParam]) -> None:
        """Scale all gradients so that their common L2 norm is at most clip_gradients (before iter_size)."""
        limit = self.param.clip_gradients
        if limit < 0:
            return
        host = UpdateKernel(self)
        groups: dict[UpdateKernel, list[LearnableParam]] = {}
        for p, kernel in zip(learnable, self._kernels, strict=True):
            groups.setdefault(host if kernel is None else kernel, []).append(p)
        norm = math.sqrt(sum(kernel.sumsq(params) for kernel, params in groups.items()))
        if norm > limit:
            factor = limit / norm
            log.info(
                "Gradient clipping: scaling down gradients (L2 norm %g > %g) by scale factor %g",
                norm,
                limit,
                factor,
            )
            for kernel, params in groups.items():
                kernel.scale(params, factor)
