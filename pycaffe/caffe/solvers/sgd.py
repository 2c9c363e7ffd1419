"""Stochastic gradient descent with momentum, and the update loop that all solvers share."""

from __future__ import annotations

import logging
import math
from typing import ClassVar

import numpy as np

from .. import context
from ..blob import Blob
from ..errors import SolverError, closest
from ..kernels import find, preferences
from ..lr_policies import learning_rate
from ..net_wiring import LearnableParam
from ..solver import Solver
from ..solver_registry import register_solver

log = logging.getLogger("caffe.solver")

# Elements that are updated at once: what the update touches stays in the cache, and no temporary grows
# with the parameter.
CHUNK = 32768


@register_solver("SGD")
class SGDSolver(Solver):
    """V ← momentum · V + lr · g;  W ← W - V.

    g is the gradient after clipping (by the global L2 norm), division by iter_size, and L2 or L1
    decay; lr and decay are scaled by each parameter's lr_mult and decay_mult. Afterwards a parameter's
    diff holds the update that was subtracted, as in the original.
    Source: Bottou, Stochastic Gradient Descent Tricks (2012); Caffe's solver documentation.
    """

    # History blobs per parameter.
    histories: ClassVar[int] = 1

    def init_history(self) -> None:
        if self.param.regularization_type not in ("L1", "L2"):
            name = self.param.regularization_type
            raise SolverError(
                f"Unknown regularization type: {name}{closest(name, ('L1', 'L2'))} (known: L1, L2)"
            )
        self.history: list[Blob] = [
            Blob(p.blob.shape) for _ in range(self.histories) for p in self.net.learnable
        ]
        row = find(self.type, preferences())
        self._kernel = row(self) if row is not None else None

    def apply_update(self) -> None:
        rate, step = learning_rate(self.param, self.iter, self.current_step)
        rate = float(np.float32(rate))
        if step != self.current_step and self.param.lr_policy == "multistep":
            log.info("MultiStep Status: Iteration %d, step = %d", self.iter, step)
        self.current_step = step
        if self.param.display and self.iter % self.param.display == 0 and context.root_solver():
            log.info("Iteration %d, lr = %g", self.iter, rate)
        learnable = self.net.learnable
        self.clip_gradients(learnable)
        scale = 1.0 / self.param.iter_size
        decay = self.param.weight_decay
        for i, param in enumerate(learnable):
            local_rate, local_decay = rate * param.lr_mult, decay * param.decay_mult
            history = self.history[i :: len(learnable)]
            if self._kernel is not None and self._kernel.supports(param, history):
                self._kernel.update(param, history, scale, local_decay, local_rate)
            else:
                self._update(param, history, scale, local_decay, local_rate)
        self.net.refresh_views()
        self.iter += 1

    def _update(
        self, param: LearnableParam, history: list[Blob], scale: float, decay: float, rate: float
    ) -> None:
        data = param.blob.mutable_cpu_data().reshape(-1)
        diff = param.blob.mutable_cpu_diff().reshape(-1)
        past = [h.mutable_cpu_data().reshape(-1) for h in history]
        l1 = self.param.regularization_type == "L1"
        scratch = self.net.run.scratch("solver", (2, min(CHUNK, max(1, data.size))))
        for start in range(0, data.size, CHUNK):
            part = slice(start, start + CHUNK)
            w, g = data[part], diff[part]
            temporary = scratch[:, : w.size]
            if scale != 1.0:
                g *= np.float32(scale)
            if decay:
                np.sign(w, out=temporary[0]) if l1 else np.copyto(temporary[0], w)
                temporary[0] *= np.float32(decay)
                g += temporary[0]
            self.compute_update(g, [h[part] for h in past], rate, temporary)
            w -= g

    def compute_update(
        self, diff: np.ndarray, history: list[np.ndarray], rate: float, temporary: np.ndarray
    ) -> None:
        """Replace the gradient in diff by the update, and renew the history. temporary: (2, n) of scratch."""
        momentum = self.param.momentum
        past = history[0]
        diff *= np.float32(rate)
        if momentum:
            past *= np.float32(momentum)
            past += diff
            diff[...] = past
        else:
            past[...] = diff

    def clip_gradients(self, learnable: list[LearnableParam]) -> None:
        """Scale all gradients so that their common L2 norm is at most clip_gradients (before iter_size)."""
        limit = self.param.clip_gradients
        if limit < 0:
            return
        norm = math.sqrt(sum(p.blob.sumsq_diff() for p in learnable))
        if norm > limit:
            factor = limit / norm
            log.info(
                "Gradient clipping: scaling down gradients (L2 norm %g > %g) by scale factor %g",
                norm,
                limit,
                factor,
            )
            for p in learnable:
                p.blob.scale_diff(factor)
