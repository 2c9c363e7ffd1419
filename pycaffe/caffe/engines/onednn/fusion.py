"""Which neighbouring steps run as one: a convolution with what follows it in place, BatchNorm with Scale and
ReLU.

    training  convolution or inner product + ReLU            exact, ReLU as a post-operation
              BatchNorm + Scale (+ ReLU)                      one primitive forward and one backward
              sum + ReLU                                      exact
    testing   convolution + BatchNorm and/or Scale (+ ReLU)   folded into the weights
              ... + sum with another blob (+ ReLU)            both as post-operations; the convolution's own
                                                              top is computed when somebody reads it

All but the last work in place, so that no blob is left out. Here is only looked; primitives are made at the
first forward, and anew after a reshape (groups.py, fused_weighted.py, fused_normalization.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...kernels import Fused
from .convolution import ConvolutionKernel
from .eltwise import EltwiseKernel
from .fused_normalization import FusedNormalization
from .fused_weighted import FusedWeighted
from .groups import FusedSum
from .inner_product import InnerProductKernel
from .neuron import ReLUKernel
from .normalization import BatchNormKernel, ScaleKernel


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
