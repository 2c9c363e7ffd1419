"""check_gradient: is a layer's backward the derivative of its forward?

    from caffe.gradient_check import check_gradient
    check_gradient('type: "Scale" scale_param { bias_term: true }', numpy.random.randn(2, 3, 4))
    check_gradient(MyLayer, scores, labels, check_bottom=0, param_str="{'margin': 1}")

The layer runs by itself, in float64, on its NumPy code. Objective: Σ weights · tops with random weights,
which are also what backward finds in the tops' diffs. Source: Caffe's GradientChecker, one idea kept
(central differences element by element), the arithmetic anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from google.protobuf import text_format

from .blob import Blob
from .errors import GradientError, LayerError, ParseError
from .execution import ExecutionContext
from .layer import Layer
from .layer_registry import create_layer
from .layer_types import python as python_layer
from .proto import caffe_pb2

_STEP, _THRESHOLD = 1e-4, 1e-4
# Where the tops show that a layer computes in float32 inside, differences over 1e-4 drown in rounding.
_STEP_FLOAT32, _THRESHOLD_FLOAT32 = 1e-2, 1e-2

LayerLike = Layer | type[Layer] | caffe_pb2.LayerParameter | str


def check_gradient(
    layer: LayerLike,
    *bottoms: Any,
    tops: int | None = None,
    phase: int = caffe_pb2.TRAIN,
    param_str: str = "",
    check_bottom: int | Sequence[int] | None = None,
    check_param: int | Sequence[int] | None = None,
    check_top: int | Sequence[int] | None = None,
    kinks: Sequence[float] = (),
    kink_range: float | None = None,
    step: float | None = None,
    threshold: float | None = None,
    samples: int = 200,
    seed: int = 1701,
) -> float:
    """Compare backward with central differences of forward; returns the worst relative error.

    layer: prototxt text (`layer { … }` or what stands inside), a LayerParameter, a class derived from
        caffe.Layer, or a layer of a net, whose parameter values are then used. A net's layer is
        left alone: the check builds another one.
    bottoms: one array each. phase: caffe.TRAIN or caffe.TEST. param_str: for a class.
    tops: how many; as the layer demands when left out.
    check_bottom, check_param: which gradients to check. Default: every bottom that may have one (no
        labels), every parameter whose lr_mult is not 0. () checks none.
    check_top: tops that count in the objective. Default: those with a loss weight, else all. A loss
        layer without loss_weight gets a random one.
    kinks, kink_range: bottom elements within kink_range (default 10 steps) of a value in kinks, where
        forward has no derivative, are left out.
    step: half the distance of the two forward passes. threshold: greatest error allowed, relative to
        the larger gradient of the two or the root mean square over the blob. Default for both: 1e-4,
        or 1e-2 when the tops show that the layer computes in float32 inside.
    samples: at most so many elements of each blob, drawn with seed, are checked.

    Also checked: forward gives the same twice, backward writes every element of a bottom's diff and
    adds to a parameter's diff. A layer that carries state between passes is asked to `reset()` before
    each one, if it has that method. Raises GradientError; what the layer raises passes unchanged.
    """
    bench = _Bench(layer, bottoms, tops, phase, param_str, seed)
    checked_bottoms = _indices(check_bottom, bench.differentiable_bottoms())
    checked_params = _indices(check_param, bench.learned_params())
    bench.weigh_tops(None if check_top is None else _indices(check_top, []))
    single = bench.computes_in_float32()
    step = step if step is not None else (_STEP_FLOAT32 if single else _STEP)
    threshold = threshold if threshold is not None else (_THRESHOLD_FLOAT32 if single else _THRESHOLD)
    kink_range = 10 * step if kink_range is None else kink_range
    if kinks and kink_range < step:
        raise ValueError(f"kink_range (={kink_range}) must not be less than step (={step})")

    bottom_diffs, param_diffs = bench.gradients(checked_bottoms, checked_params)
    blobs = [(f"bottom[{i}]", bench.bottom[i], bottom_diffs[i]) for i in checked_bottoms]
    blobs += [(f"blobs[{j}]", bench.layer.blobs[j], param_diffs[j]) for j in checked_params]
    worst, count = 0.0, 0
    for name, blob, computed in blobs:
        values = bench.start[blob]
        chosen = np.arange(values.size)
        if name.startswith("bottom"):
            near = [np.abs(values.ravel() - kink) <= kink_range for kink in kinks]
            chosen = chosen[~np.any(near, axis=0)] if near else chosen
        if chosen.size > samples:
            chosen = np.sort(bench.random.choice(chosen, samples, replace=False))
        if chosen.size:
            estimates = [bench.difference(blob, int(k), step, single) for k in chosen]
            worst = max(
                worst, _compare(bench.layer, name, values, chosen, computed, estimates, step, threshold)
            )
            count += chosen.size
    if not count:
        raise bench.layer.error(
            "no element was checked: no bottom or parameter has a gradient, or all lie near a kink",
            GradientError,
        )
    return worst


def _compare(
    layer: Layer,
    name: str,
    values: np.ndarray,
    chosen: np.ndarray,
    diff: np.ndarray,
    estimates: list[tuple[float, float]],
    step: float,
    threshold: float,
) -> float:
    computed = diff.ravel()[chosen]
    estimated, noise = np.array(estimates).T
    finite = np.isfinite(computed)
    size = np.maximum(np.maximum(np.abs(np.where(finite, computed, 0)), np.abs(estimated)), _rms(estimated))
    # Rounding in forward is not the layer's fault; nor is a difference of two numbers that are both noise.
    error = np.maximum(np.abs(computed - estimated) - noise, 0)
    error = np.divide(error, size, out=np.zeros_like(error), where=size > 0)
    error[~finite] = np.inf
    k = int(np.argmax(error))
    if error[k] > threshold:
        index = tuple(int(i) for i in np.unravel_index(chosen[k], values.shape))
        wrong = int(np.count_nonzero(error > threshold))
        raise layer.error(
            f"backward gives {computed[k]:.8g} for {name}{list(index)} (value {values[index]:.8g}), central "
            f"differences with step {step:g} give {estimated[k]:.8g}; {wrong} of {chosen.size} elements "
            f"checked in {name} are off by more than {threshold:g}, this one most"
            + ("" if finite[k] else ". Every element of a bottom's diff must be written"),
            GradientError,
        )
    return float(error[k])


def _rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(x))))


def _indices(wanted: int | Sequence[int] | None, default: list[int]) -> list[int]:
    if wanted is None:
        return default
    return [wanted] if isinstance(wanted, int) else list(wanted)


class _Bench:
    """One layer on a bench: its blobs, where they start, and the objective's weights."""

    def __init__(
        self,
        layer: LayerLike,
        bottoms: Sequence[Any],
        tops: int | None,
        phase: int,
        param_str: str,
        seed: int,
    ):
        self.random = np.random.default_rng(seed)
        self.bottom = [_blob(np.asarray(x, np.float64)) for x in bottoms]
        self.layer = _create(layer, phase, param_str)
        self.layer.run = ExecutionContext((seed, 0))
        self.layer.run.sub_iteration = 0
        self.top = [Blob((), np.float64) for _ in range(self._num_tops(tops))]
        self.layer.setup(self.bottom, self.top)
        self._widen_parameters(layer.blobs if isinstance(layer, Layer) else [])
        self.start: dict[Blob, np.ndarray] = {
            blob: blob.cpu_data().copy() for blob in (*self.bottom, *self.layer.blobs)
        }
        self.layer.loss_weights = self._loss_weights()
        self.weights: list[np.ndarray] = []

    def _num_tops(self, wanted: int | None) -> int:
        if wanted is not None:
            return wanted
        layer = self.layer
        named = len(layer.layer_param.top)
        if named:
            return named
        if layer.equal_num_bottom_top:
            return len(self.bottom)
        return layer.exact_num_top if layer.exact_num_top is not None else max(layer.min_top or 1, 1)

    def _widen_parameters(self, values: Sequence[Blob]) -> None:
        for j, blob in enumerate(self.layer.blobs):
            source = values[j] if j < len(values) else blob
            self.layer.blobs[j] = _blob(source.cpu_data().astype(np.float64))
        specs = self.layer.layer_param.param
        self.layer.param_propagate_down = [
            j >= len(specs) or specs[j].lr_mult != 0 for j in range(len(self.layer.blobs))
        ]

    def _loss_weights(self) -> list[float]:
        given = list(self.layer.layer_param.loss_weight)
        if not given and self.layer.is_loss:
            given = [float(self.random.uniform(0.5, 2))]
        return given + [0.0] * (len(self.top) - len(given))

    def differentiable_bottoms(self) -> list[int]:
        return [i for i in range(len(self.bottom)) if self.layer.allow_force_backward(i)]

    def learned_params(self) -> list[int]:
        return [j for j, wanted in enumerate(self.layer.param_propagate_down) if wanted]

    def weigh_tops(self, counted: list[int] | None) -> None:
        """Run forward twice, find the tops' shapes, and draw the objective's weights."""
        first = self.forward()
        self.restore()
        second = self.forward()
        if any(not np.array_equal(a, b, equal_nan=True) for a, b in zip(first, second, strict=True)):
            raise self.layer.error(
                "two forward passes over the same bottoms differ, so that there is nothing to differentiate: "
                "the layer draws random numbers of its own (use self.run.random(self.name)) or carries state "
                "(give it a reset())",
                GradientError,
            )
        losses = [i for i, weight in enumerate(self.layer.loss_weights) if weight]
        if counted is None:
            counted = losses or list(range(len(self.top)))
        for i, values in enumerate(first):
            if i not in counted:
                self.weights.append(np.zeros_like(values))
            elif i in losses:
                self.weights.append(np.full_like(values, self.layer.loss_weights[i]))
            else:
                self.weights.append(
                    self.random.uniform(0.5, 1.5, values.shape) * self.random.choice([-1, 1], values.shape)
                )
        self._first = first

    def computes_in_float32(self) -> bool:
        wide = any(not _is_float32(self.start[blob]) for blob in self.bottom)
        return wide and all(_is_float32(values) for values in self._first)

    def forward(self) -> list[np.ndarray]:
        """The tops for the bottoms and parameters as they stand."""
        if hasattr(self.layer, "reset"):
            self.layer.reset()  # type: ignore[attr-defined]
        self.layer.reshape(self.bottom, self.top)
        self.layer.forward(self.bottom, self.top)
        return [blob.cpu_data().copy() for blob in self.top]

    def restore(self) -> None:
        """Bottoms and parameters as they were (forward may change parameters: moving averages)."""
        for blob, values in self.start.items():
            blob.mutable_cpu_data()[...] = values

    def gradients(
        self, bottoms: Sequence[int], params: Sequence[int]
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """What backward gives: for every bottom, and for every parameter what was added to its diff."""
        self.restore()
        self.layer.param_propagate_down = [j in params for j in range(len(self.layer.blobs))]
        self.forward()
        # Bottoms first: a top may share a bottom's diff (Reshape).
        for blob in self.bottom:
            blob.overwrite_cpu_diff()[...] = np.nan
        for blob, weights in zip(self.top, self.weights, strict=True):
            blob.overwrite_cpu_diff()[...] = weights
        before = [self.random.standard_normal(blob.shape) for blob in self.layer.blobs]
        for blob, values in zip(self.layer.blobs, before, strict=True):
            blob.overwrite_cpu_diff()[...] = values
        self.layer.backward(self.top, [i in bottoms for i in range(len(self.bottom))], self.bottom)
        return (
            [blob.cpu_diff().copy() for blob in self.bottom],
            [blob.cpu_diff() - values for blob, values in zip(self.layer.blobs, before, strict=True)],
        )

    def difference(self, blob: Blob, k: int, step: float, single: bool) -> tuple[float, float]:
        """(central difference of the objective by element k of blob, the rounding error in it)"""
        sides = []
        for sign in (1, -1):
            self.restore()
            blob.mutable_cpu_data().reshape(-1)[k] += sign * step
            sides.append(self.forward())
        self.restore()
        total = rounding = 0.0
        for weights, up, down in zip(self.weights, *sides, strict=True):
            # Element by element: tops that did not move add no rounding.
            moved = up != down
            total += float(np.sum(weights * (up - down), where=moved))
            rounding += float(np.sum(np.abs(weights) * (np.abs(up) + np.abs(down)), where=moved))
        epsilon = float(np.finfo(np.float32 if single else np.float64).eps)
        return total / (2 * step), 4 * epsilon * rounding / (2 * step)


def _create(layer: LayerLike, phase: int, param_str: str) -> Layer:
    if isinstance(layer, Layer):
        param, make = caffe_pb2.LayerParameter(), type(layer)
        param.CopyFrom(layer.layer_param)
    elif isinstance(layer, type):
        param, make = caffe_pb2.LayerParameter(name=layer.__name__, type=layer.type or layer.__name__), layer
        param.python_param.param_str = param_str
    else:
        param, make = _message(layer), None
    param.phase = phase  # type: ignore[assignment]
    param.name = param.name or param.type
    if make is None:
        return create_layer(param)
    return python_layer.construct(make, param)


def _message(layer: caffe_pb2.LayerParameter | str) -> caffe_pb2.LayerParameter:
    param = caffe_pb2.LayerParameter()
    if not isinstance(layer, str):
        param.CopyFrom(layer)
        return param
    try:
        if not layer.lstrip().startswith("layer"):
            return text_format.Parse(layer, param)
        net = text_format.Parse(layer, caffe_pb2.NetParameter())
    except text_format.ParseError as fault:
        raise ParseError(f"no layer's prototxt: {fault}") from None
    if len(net.layer) != 1:
        raise LayerError(f"check_gradient takes one layer, not {len(net.layer)}")
    param.CopyFrom(net.layer[0])
    return param


def _blob(values: np.ndarray) -> Blob:
    blob = Blob(values.shape, np.float64)
    blob.overwrite_cpu_data()[...] = values
    return blob


def _is_float32(values: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.array_equal(values, values.astype(np.float32).astype(np.float64), equal_nan=True))
