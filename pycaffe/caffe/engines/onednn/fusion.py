"""Which neighbouring steps run as one: a convolution with what follows it in place, BatchNorm with Scale and
ReLU.

    training  convolution or inner product + ReLU            exact, ReLU as a post-operation
              BatchNorm + Scale (+ ReLU)                      one primitive forward and one backward
              sum + ReLU                                      exact
    testing   convolution + BatchNorm and/or Scale (+ ReLU)   folded into the weights
              ... + sum with another blob (+ ReLU)            both as post-operations; the convolution's own
              top is
                                                              computed when somebody reads it

All but the last work in place, so that no blob is left out. `match` only looks; primitives are made at the
first forward, and anew after a reshape."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import LayerError, NetError
from ...execution import ExecutionContext
from ...kernels import Fused
from .base import Call, Gradient
from .convolution import ConvolutionKernel
from .eltwise import EltwiseKernel
from .inner_product import InnerProductKernel, forward_desc
from .library import OneDNNError
from .neuron import ReLUKernel
from .normalization import BatchNormKernel, ScaleKernel, vector
from .normalization import backward_desc as bn_backward_desc
from .normalization import forward_desc as bn_forward_desc
from .place import PLACE, Operand
from .primitives import (
    BIAS,
    BINARY_ADD,
    DIFF_DST,
    DIFF_SCALE,
    DIFF_SHIFT,
    DIFF_SRC,
    DST,
    FORWARD_TRAINING,
    FUSE_RELU,
    MEAN,
    RELU,
    SCALE,
    SRC,
    USE_SCALE,
    USE_SHIFT,
    VARIANCE,
    WEIGHTS,
    WORKSPACE,
    WORKSPACE_MD,
    Attributes,
    Buffer,
    Memory,
    PrimitiveDesc,
    plain,
    post_operand,
)


def fuse(steps: Sequence[Any], start: int) -> Fused | None:
    """The longest group that begins there, or None."""
    first = steps[start].kernel
    if isinstance(first, (ConvolutionKernel, InnerProductKernel)) and len(steps[start].top) == 1:
        return _match_weighted(steps, start)
    if isinstance(first, BatchNormKernel) and not first.global_stats:
        return _match_normalization(steps, start)
    if isinstance(first, EltwiseKernel) and first.plain_sum and len(steps[start].bottom) == 2:
        relu = _in_place(steps, start + 1, steps[start].top[0], ReLUKernel)
        return FusedSum([steps[start], relu]) if relu is not None else None
    return None


def _in_place(steps: Sequence[Any], i: int, blob: Any, kind: type) -> Any:
    """Step i, if it is of that kind and works in place on blob."""
    if i >= len(steps) or not isinstance(steps[i].kernel, kind):
        return None
    step = steps[i]
    fits = len(step.bottom) == 1 and step.bottom[0] is blob and step.top[0] is blob and not step.losses
    return step if fits else None


def _match_weighted(steps: Sequence[Any], start: int) -> Fused | None:
    top, i = steps[start].top[0], start + 1
    if steps[start].losses:
        return None
    folded = []
    if isinstance(steps[start].kernel, ConvolutionKernel):
        for kind in (BatchNormKernel, ScaleKernel):
            step = _in_place(steps, i, top, kind)
            if step is None or (kind is BatchNormKernel and not step.kernel.global_stats) or _trains(step):
                continue
            folded.append(step)
            i += 1
    relu = _in_place(steps, i, top, ReLUKernel)
    i += relu is not None
    total = None
    if folded and relu is None and i < len(steps):
        step = steps[i]
        kernel = step.kernel
        if (
            isinstance(kernel, EltwiseKernel)
            and kernel.plain_sum
            and len(step.bottom) == 2
            and sum(b is top for b in step.bottom) == 1
            and not step.losses
            and not any(step.propagate_down)
        ):
            total = step
            i += 1
            relu = _in_place(steps, i, step.top[0], ReLUKernel)
            i += relu is not None
    if i == start + 1:
        return None
    return FusedWeighted(list(steps[start:i]), folded, total, relu)


def _trains(step: Any) -> bool:
    """Is backward through this step likely? Folding then would only cost."""
    return step.layer.phase == 0


def _match_normalization(steps: Sequence[Any], start: int) -> Fused | None:
    top = steps[start].top[0]
    scale = _in_place(steps, start + 1, top, ScaleKernel)
    if scale is None or steps[start].losses:
        return None
    relu = _in_place(steps, start + 2, top, ReLUKernel)
    if relu is not None and relu.layer.negative_slope:
        relu = None
    return FusedNormalization(steps[start : start + (2 if relu is None else 3)])


class _Group(Fused):
    """prepare is called before the first forward and after each change of a member's kernel; False leaves
    this forward to the steps.

    swallowed: a member's top that is computed only when it is read. only_called: the last forward was nothing
    but calls of primitives, which may be repeated (repeated.py)."""

    def __init__(self, steps: Sequence[Any]):
        super().__init__(steps)
        self.swallowed: Any = None
        self.only_called = False
        self._known: list[Any] = []
        self._able = False
        # Kernels and blobs that refer to the group do so weakly, so that a net is freed as soon as it is
        # dropped.
        self._reference = weakref.ref(self)

    def ready(self, run: ExecutionContext) -> bool:
        for step in self.steps:
            if step.outdated:
                return False
        for step, known in zip(self.steps, self._known, strict=False):
            if step.kernel.known is not known:
                break
        else:
            if self._known:
                return self._able
        self._known = [step.kernel.known for step in self.steps]
        try:
            self._able = self.prepare(run)
        except OneDNNError as error:
            if not error.unimplemented:
                raise
            self._able = False
        return self._able

    def prepare(self, run: ExecutionContext) -> bool:
        raise NotImplementedError

    def run(self, run: ExecutionContext) -> None:
        raise NotImplementedError

    def forward(self, run: ExecutionContext) -> float:
        if self.ready(run):
            self.only_called = self.repeatable
            self.run(run)
            return 0.0
        self.only_called = False
        return sum(step.forward(run) for step in self.steps)

    def folded_parameters(self) -> Sequence[Any]:
        """Blobs from which forward computes weights of its own whenever they have changed."""
        return ()

    def lazy_sources(self) -> Sequence[Any]:
        """Blobs from which `swallowed` is computed."""
        return ()

    def again(self) -> None:
        """What forward does besides its calls."""


class _Deferred:
    """Computes the top that a group has swallowed, as long as its net lives."""

    def __init__(self, group: FusedWeighted, run: ExecutionContext):
        self._group, self._run = weakref.ref(group), run

    def __call__(self) -> None:
        group = self._group()
        if group is None:
            raise NetError("this blob was to be computed when it is read, but its net has been deleted since")
        group.compute_top(self._run)


def _unfinished() -> None:
    raise NetError("this blob was to be computed when it is read, but the last pass did not come that far")


class FusedSum(_Group):
    """Eltwise's sum of two, and ReLU. Backward, each bottom's diff is the top's: lent, not copied."""

    fuses_backward = True
    lends_diffs = True
    repeatable = True

    def prepare(self, run: ExecutionContext) -> bool:
        total, relu = self.steps
        post = [("eltwise", RELU, relu.layer.negative_slope, 0.0)]
        self._call = total.kernel.forward_call(run, total.bottom, total.top[0], post)
        return True

    def run(self, run: ExecutionContext) -> None:
        self._call()

    def begin_backward(self) -> None:
        total = self.steps[0]
        lender = total.top[0].diff_mem
        for blob in total.bottom:
            if blob.diff_mem.borrows_from(lender):
                blob.diff_mem.release([lender])
                blob.diff_mem.defer(_unfinished)

    def backward(self, run: ExecutionContext) -> None:
        total, relu = self.steps
        relu.backward(run)
        layout = total.kernel.layout
        lender = total.top[0].diff_mem
        if layout.plain or any(blob.diff_mem is lender for blob in total.bottom):
            total.backward(run)
            return
        for blob, wanted in zip(total.bottom, total.propagate_down, strict=True):
            if wanted:
                blob.diff_mem.borrow(lender, PLACE, layout)


class Folded:
    """A convolution's weights and bias with BatchNorm's running statistics and Scale in them."""

    def __init__(self, step: Any, folded: Sequence[Any]):
        self._step, self._folded = step, folded
        layout = step.kernel.weights
        self._plain = np.empty(step.layer.blobs[0].shape, np.float32)
        self._channels = plain((step.layer.num_output,))
        self.weights, self.bias = (
            Memory(layout, Buffer(layout.nbytes)),
            Memory(self._channels, Buffer(self._channels.nbytes)),
        )
        self.blobs = [b for s in (step, *folded) for b in s.layer.blobs]
        self._versions: list[tuple[int, int]] = []

    def refresh(self) -> None:
        """Fold anew if a parameter may have changed."""
        versions = [(id(b.data_mem), b.data_mem.version) for b in self.blobs]
        if versions == self._versions:
            return
        self._versions = versions
        weight, *biases = self._step.layer.blobs
        factor = np.ones(weight.shape[0], np.float64)
        offset = biases[0].cpu_data().astype(np.float64) if biases else np.zeros(weight.shape[0])
        for step in self._folded:
            if isinstance(step.kernel, BatchNormKernel):
                step.kernel.running()
                inverse = 1 / np.sqrt(step.kernel.variance.astype(np.float64) + step.layer.eps)
                factor *= inverse
                offset = (offset - step.kernel.mean) * inverse
            else:
                scale, *shift = step.layer.blobs
                factor *= scale.cpu_data().reshape(-1)
                offset *= scale.cpu_data().reshape(-1)
                if shift:
                    offset += shift[0].cpu_data().reshape(-1)
        rows = self._plain.reshape(weight.shape[0], -1)
        np.multiply(weight.cpu_data().reshape(rows.shape), factor.astype(np.float32)[:, None], out=rows)
        PLACE.lay(self._plain, self.weights)
        PLACE.lay(offset.astype(np.float32), self.bias)


class FusedWeighted(_Group):
    """Convolution or InnerProduct, with what is folded into it, a sum and ReLU."""

    repeatable = True

    def __init__(self, steps: Sequence[Any], folded: Sequence[Any], total: Any, relu: Any):
        super().__init__(steps)
        self._folded_steps, self._total, self._relu = folded, total, relu
        self._folded: Folded | None = None
        self._sources: list[Any] = []

    def prepare(self, run: ExecutionContext) -> bool:
        step, kernel = self.steps[0], self.steps[0].kernel
        target = step.top[0]
        post: list[tuple] = []
        extra: dict[int, Any] = {}
        if self._total is not None:
            target = self._total.top[0]
            other = next(b for b in self._total.bottom if b is not step.top[0])
            post.append(("binary", BINARY_ADD, kernel.features))
            extra[post_operand(0)] = Operand(other, "data", kernel.features, "read")
        if self._relu is not None:
            post.append(("eltwise", RELU, self._relu.layer.negative_slope, 0.0))
        attributes = Attributes(post)
        if isinstance(kernel, InnerProductKernel):
            desc = forward_desc(
                kernel.source, kernel.weights, step.layer.num_output, step.layer.bias_term, attributes
            )
        else:
            desc = kernel.geometry.forward(
                kernel.image, kernel.weights, kernel.features, attributes, add_bias=bool(self._folded_steps)
            )
        if "ref" in desc.implementation and "ref" not in kernel.found.implementation:
            return False
        self._folded = Folded(step, self._folded_steps) if self._folded_steps else None
        if self._folded is not None:
            extra |= {WEIGHTS: self._folded.weights, BIAS: self._folded.bias}
        self._call = kernel.forward_call(run, desc, step.bottom[0], target, extra)
        # The convolution's own top, if no step writes it, and what it is computed from.
        self.swallowed = None
        if self._total is not None and target is not step.top[0]:
            self.swallowed = step.top[0]
        sources = [
            b for s in self.steps[: 1 + len(self._folded_steps)] for b in (*s.bottom[:1], *s.layer.blobs)
        ]
        self._sources = [b for b in dict.fromkeys(sources) if b is not step.top[0]]
        return True

    def begin(self) -> None:
        if self.swallowed is not None:
            mem = self.swallowed.data_mem
            mem.release(b.data_mem for b in self._sources)
            mem.defer(_unfinished)

    def run(self, run: ExecutionContext) -> None:
        if self.swallowed is not None and any(b.data_mem.exporter() is not None for b in self._sources):
            # Whoever holds an array of a source may change it unseen: compute everything now.
            self.only_called = False
            for step in self.steps:
                step.forward(run)
            return
        if self._folded is not None:
            self._folded.refresh()
        self._call()
        if self.swallowed is not None:
            self._seen = [b.data_mem for b in self._sources]
            self.swallowed.data_mem.defer(_Deferred(self, run), self._seen)
        self.again()

    def again(self) -> None:
        for step in self._folded_steps:
            step.kernel.restore = self._reference

    def folded_parameters(self) -> Sequence[Any]:
        return () if self._folded is None else self._folded.blobs

    def lazy_sources(self) -> Sequence[Any]:
        return () if self.swallowed is None else self._sources

    def compute_top(self, run: ExecutionContext) -> None:
        """The convolution's own top, which the sum swallowed."""
        if any(a is not b.data_mem for a, b in zip(self._seen, self._sources, strict=True)):
            raise LayerError(
                "its top was swallowed by the sum that follows, and its parameters have been replaced by "
                "another net's since: read it before that",
                layer=self.layer.name,
                layer_type=self.layer.type,
            )
        for step in self.steps[: 1 + len(self._folded_steps)]:
            step.kernel.forward(run, step.bottom, step.top)

    def restore(self, run: ExecutionContext) -> None:
        """Run the steps one by one, for what their backward needs."""
        for step in self.steps:
            step.kernel.forward(run, step.bottom, step.top)


class FusedNormalization(_Group):
    """BatchNorm over the batch, Scale, and ReLU, forward and backward."""

    fuses_backward = True

    def prepare(self, run: ExecutionContext) -> bool:
        bn, scale = self.steps[0], self.steps[1]
        kernel, layout = bn.kernel, bn.kernel.layout
        self._params = scale.kernel.parameters()
        self._flags = sum(USE_SCALE if k == SCALE else USE_SHIFT for k in self._params)
        if len(self.steps) > 2:
            self._flags |= FUSE_RELU
        self._desc = bn_forward_desc(FORWARD_TRAINING, layout, bn.layer.eps, self._flags)
        channels = plain(kernel.mean.shape)
        self._stats = {MEAN: vector(kernel.mean), VARIANCE: vector(kernel.variance)}
        arguments: dict[int, Any] = {
            SRC: kernel.source_argument,
            DST: Operand(bn.top[0], "data", layout, "write"),
            **self._stats,
            **{k: Operand(b, "data", channels, "read", on_host=True) for k, b in self._params.items()},
        }
        self._workspace: dict[int, Any] = {}
        workspace = self._desc.desc(WORKSPACE_MD)
        if workspace.nbytes:
            self._workspace = {WORKSPACE: Memory(workspace, Buffer(workspace.nbytes))}
        self._call = Call(run, self._desc, {**arguments, **self._workspace})
        self._backward: Call | None = None
        return True

    def run(self, run: ExecutionContext) -> None:
        bn, scale = self.steps[0].kernel, self.steps[1].kernel
        if bn.kept is not None:
            bn.kept.take()
        self._call()
        bn.update()
        bn.fused = scale.restore = self._reference

    def restore(self, run: ExecutionContext) -> None:
        """Give Scale what it would have read: BatchNorm's own top."""
        bn, scale = self.steps[0].kernel, self.steps[1].kernel
        if scale.kept is not None:
            bn.normalize_into(run, scale.kept.prepare_to_fill())

    def backward(self, run: ExecutionContext) -> None:
        if self.steps[0].kernel.fused is not self._reference or not self.ready(run):
            for step in reversed(self.steps):
                step.backward(run)
            return
        if self._backward is None:
            self._prepare_backward(run)
        for gradient in self._gradients:
            gradient.before()
        self._backward()  # type: ignore[misc]
        for gradient in self._gradients:
            gradient.after()

    def _prepare_backward(self, run: ExecutionContext) -> None:
        bn, scale = self.steps[0], self.steps[1]
        kernel, layout = bn.kernel, bn.kernel.layout
        channels = plain(kernel.mean.shape)
        desc: PrimitiveDesc = bn_backward_desc(layout, bn.layer.eps, self._flags, self._desc)
        wanted = dict(zip(map(id, scale.layer.blobs), scale.layer.param_propagate_down, strict=True))
        self._gradients = [
            Gradient(run, b, channels, wanted[id(b)], on_host=True) for b in self._params.values()
        ]
        arguments: dict[int, Any] = {
            SRC: kernel.source_argument,
            DIFF_DST: Operand(bn.top[0], "diff", layout, "read"),
            DIFF_SRC: Operand(bn.bottom[0], "diff", layout, "write"),
            **self._stats,
            **self._workspace,
        }
        for (k, blob), gradient in zip(self._params.items(), self._gradients, strict=True):
            arguments[DIFF_SCALE if k == SCALE else DIFF_SHIFT] = gradient.memory
            if k == SCALE:
                arguments[SCALE] = Operand(blob, "data", channels, "read", on_host=True)
        self._backward = Call(run, desc, arguments)
