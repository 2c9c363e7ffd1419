"""Arrays, numbers and metrics as people give them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..model import ModelError

Arrays = tuple[Any, Any]
Metric = Callable[[np.ndarray, np.ndarray], float]


def slices(count: int, batch_size: int) -> Iterator[slice]:
    return (slice(start, start + batch_size) for start in range(0, count, batch_size))


def items(name: str, values: Any) -> np.ndarray:
    """An array of items. Raises ModelError for what is none, or has no numbers."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ModelError(f"{name} must be an array of numbers: {error}") from error
    if array.dtype.kind not in "fiub" or not array.ndim:
        cure = f": {name}.astype(float) makes numbers of objects" if array.dtype.kind == "O" else ""
        raise ModelError(
            f"{name} must be an array of numbers, not {array.dtype} of shape {array.shape}{cure}"
        )
    if not len(array):
        raise ModelError(f"{name} must have one item or more")
    return array


def pairs(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Items and their targets. Raises ModelError when they do not go together."""
    x, y = items("x", x), items("y", y)
    if len(x) != len(y):
        raise ModelError(f"x and y must have equally many items, not {len(x)} and {len(y)}")
    return x, y


def check_labels(y: np.ndarray) -> None:
    """Raises ModelError for labels that are no whole numbers."""
    if y.dtype.kind == "f" and not np.array_equal(y, np.trunc(y)):
        where = int(np.flatnonzero(y != np.trunc(y))[0])
        raise ModelError(
            f"labels are integers, 0 for the first class, and y[{where}] (flat) is {y.flat[where]:g}; for "
            'numbers, compile("mse")'
        )


def column(y: np.ndarray) -> np.ndarray:
    return y[:, None] if y.ndim == 1 else y


def metric_of(metric: str | Metric) -> tuple[str, Metric]:
    """A metric's name and function. Raises ModelError for an unknown one."""
    if callable(metric):
        return getattr(metric, "__name__", type(metric).__name__), metric
    if metric not in ("accuracy", "acc"):
        raise ModelError(f"unknown metric {metric!r}: 'accuracy', or a function (target, prediction)")
    return "accuracy", accuracy


def accuracy(target: np.ndarray, prediction: np.ndarray) -> float:
    """The share of right answers: the best of several scores, or, for a single one, above a half."""
    if target.shape == prediction.shape or prediction.shape[1:] == (1,):
        return float(((prediction.reshape(target.shape) > 0.5) == (target > 0.5)).mean())
    return float((prediction.argmax(axis=1).reshape(target.shape) == target).mean())
