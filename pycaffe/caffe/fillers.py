"""Fillers: the initial values of parameters.

A filler is a function (array, filler_param, generator) that overwrites `array` in place. `fill` finds it
by `filler_param.type`; `@register_filler("mytype")` adds one of your own, which prototxts may then name.

fan_in is the number of inputs that one output sees, count / shape[0]; fan_out is count / shape[1]. Both
hold for arrays of any number of axes, (num_output, channels / group, kernel...) being the usual shape.
variance_norm chooses n for xavier and msra: FAN_IN (default), FAN_OUT, or AVERAGE of the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import numpy as np

from .errors import FillerError, closest
from .proto import caffe_pb2

Filler = Callable[[np.ndarray, caffe_pb2.FillerParameter, np.random.Generator], None]

_fillers: dict[str, Filler] = {}


def register_filler(type: str) -> Callable[[Filler], Filler]:
    """Decorator: filler_param { type: "<type>" } calls this function.

    Raises FillerError when the type has an owner already.
    """

    def decorate(filler: Filler) -> Filler:
        if type in _fillers:
            owner = f"{_fillers[type].__module__}.{_fillers[type].__qualname__}"
            raise FillerError(f"filler type '{type}' is registered already, by {owner}")
        _fillers[type] = filler
        return filler

    return decorate


def unregister_filler(type: str) -> None:
    """Forget a type (notebooks that define a filler again, tests)."""
    _fillers.pop(type, None)


def filler_types() -> list[str]:
    """All types that a filler_param may name, sorted."""
    return sorted(_fillers)


def fill(array: np.ndarray, filler_param: caffe_pb2.FillerParameter, generator: np.random.Generator) -> None:
    """Overwrite array (float, writable, any shape) as filler_param says.

    Raises FillerError for an unknown type, or parameters or a shape that the type cannot work with.
    """
    filler = _fillers.get(filler_param.type)
    if filler is None:
        raise FillerError(
            f"Unknown filler name: {filler_param.type}{closest(filler_param.type, _fillers)} "
            f"(known types: {', '.join(filler_types())})"
        )
    filler(array, filler_param, generator)


@register_filler("constant")
def constant(array: np.ndarray, param: caffe_pb2.FillerParameter, generator: np.random.Generator) -> None:
    """x = value (0)."""
    array[...] = param.value


@register_filler("uniform")
def uniform(array: np.ndarray, param: caffe_pb2.FillerParameter, generator: np.random.Generator) -> None:
    """x ~ U(min (0), max (1))."""
    if param.min > param.max:
        raise FillerError(f"uniform filler: min (={param.min:g}) must be at most max (={param.max:g})")
    _draw_uniform(array, param.min, param.max, generator)


@register_filler("gaussian")
def gaussian(array: np.ndarray, param: caffe_pb2.FillerParameter, generator: np.random.Generator) -> None:
    """x ~ N(mean (0), std (1)).

    With sparse >= 0, each value is kept with probability sparse / shape[0] and 0 otherwise, so that each
    input is connected to `sparse` outputs on average. sparse -1 (default) keeps all.
    """
    if param.std <= 0:
        raise FillerError(
            f'gaussian filler: std (={param.std:g}) must be above 0; for equal values use type: "constant"'
        )
    if param.sparse < -1:
        raise FillerError(f"gaussian filler: sparse (={param.sparse}) must be at least 0, or -1 for none")
    _draw_gaussian(array, param.mean, param.std, generator)
    if param.sparse >= 0:
        outputs = array.shape[0] if array.ndim else 1
        if param.sparse > outputs:
            raise FillerError(
                f"gaussian filler: sparse (={param.sparse}) must be at most shape[0] (={outputs}), "
                "the number of outputs"
            )
        array *= generator.random(array.shape, np.float32) < param.sparse / outputs


@register_filler("positive_unitball")
def positive_unitball(
    array: np.ndarray, param: caffe_pb2.FillerParameter, generator: np.random.Generator
) -> None:
    """x ~ U(0, 1), then divided so that everything of one output (array[i]) sums to 1."""
    _draw_uniform(array, 0.0, 1.0, generator)
    array /= array.sum(axis=tuple(range(1, array.ndim)), keepdims=True)


@register_filler("xavier")
def xavier(array: np.ndarray, param: caffe_pb2.FillerParameter, generator: np.random.Generator) -> None:
    """x ~ U(-a, a), a = sqrt(3 / n). Source: Glorot and Bengio, AISTATS 2010."""
    bound = math.sqrt(3.0 / _fan(array, param))
    _draw_uniform(array, -bound, bound, generator)


@register_filler("msra")
def msra(array: np.ndarray, param: caffe_pb2.FillerParameter, generator: np.random.Generator) -> None:
    """x ~ N(0, sqrt(2 / n)). Source: He, Zhang, Ren and Sun, ICCV 2015."""
    _draw_gaussian(array, 0.0, math.sqrt(2.0 / _fan(array, param)), generator)


@register_filler("bilinear")
def bilinear(array: np.ndarray, param: caffe_pb2.FillerParameter, generator: np.random.Generator) -> None:
    """Kernel that interpolates (multi)linearly, the same for every pair of channels.

    Per spatial axis w[i] = 1 - |i / f - c|, f = ceil(size / 2), c = (size - 1) / 2f. For upsampling by a
    factor s, use it in a Deconvolution with kernel_size 2s - s mod 2, stride s, pad ceil((s - 1) / 2),
    group = num_output = channels, no bias and lr_mult 0.
    """
    if array.ndim < 3:
        raise FillerError(
            "bilinear filler: Blob must be 4 dim. (or have another number of spatial axes above 0), "
            f"not of shape {array.shape}"
        )
    if len(set(array.shape[2:])) > 1:
        raise FillerError(f"bilinear filler: Filter must be square, not of shape {array.shape[2:]}")
    size = array.shape[2]
    f = (size + 1) // 2
    c = (size - 1) / (2.0 * f)
    line = 1.0 - np.abs(np.arange(size) / f - c)
    array[...] = reduce(np.multiply.outer, [line] * (array.ndim - 2))


def _fan(array: np.ndarray, param: caffe_pb2.FillerParameter) -> float:
    """The n of xavier and msra; 1 at least, so that an empty array is no special case."""
    fan_in = array.size / max(array.shape[0], 1) if array.ndim else 1.0
    fan_out = array.size / max(array.shape[1], 1) if array.ndim > 1 else float(array.size)
    if param.variance_norm == caffe_pb2.FillerParameter.AVERAGE:
        n = (fan_in + fan_out) / 2
    elif param.variance_norm == caffe_pb2.FillerParameter.FAN_OUT:
        n = fan_out
    else:
        n = fan_in
    return max(n, 1.0)


def _draw_uniform(array: np.ndarray, low: float, high: float, generator: np.random.Generator) -> None:
    array[...] = generator.random(array.shape, np.float32)
    array *= high - low
    array += low


def _draw_gaussian(array: np.ndarray, mean: float, std: float, generator: np.random.Generator) -> None:
    array[...] = generator.standard_normal(array.shape, np.float32)
    array *= std
    array += mean
