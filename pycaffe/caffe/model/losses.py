"""Layer functions of what a net is trained and judged by: losses and accuracy."""

from __future__ import annotations

from typing import Any

from .functions import general, rest
from .graph import Top
from .model import Model


def softmax_loss(
    model: Model,
    scores: Top,
    labels: Top,
    *,
    weight: float = 1.0,
    axis: int = 1,
    ignore_label: int | None = None,
    name: str = "",
    **more: Any,
) -> Top:
    """Softmax cross-entropy (SoftmaxWithLoss) of scores (N, C, ...) for labels (N, ...), integers in [0, C).

    weight: of this loss in the objective. ignore_label: elements of this label count nothing.
    """
    params: dict[str, Any] = {"ignore_label": ignore_label} if ignore_label is not None else {}
    if axis != 1:
        params["softmax_param"] = {"axis": axis}
    return _loss(model, "SoftmaxWithLoss", scores, labels, params, weight, name, more)


def euclidean_loss(
    model: Model, x: Top, target: Top, *, weight: float = 1.0, name: str = "", **more: Any
) -> Top:
    """1 / 2N Σ (x - target)², N the first axis; x and target of one number of elements."""
    return _loss(model, "EuclideanLoss", x, target, {}, weight, name, more)


def sigmoid_loss(
    model: Model, scores: Top, target: Top, *, weight: float = 1.0, name: str = "", **more: Any
) -> Top:
    """Cross-entropy (SigmoidCrossEntropyLoss) of independent probabilities sigmoid(scores) for targets in
    [0, 1], both of one shape."""
    return _loss(model, "SigmoidCrossEntropyLoss", scores, target, {}, weight, name, more)


def _loss(
    model: Model,
    type: str,
    x: Top,
    target: Top,
    params: dict[str, Any],
    weight: float,
    name: str,
    more: dict[str, Any],
) -> Top:
    if weight != 1:
        params["loss_weight"] = weight
    return model.add_layer(
        type, [x, target], {**params, **rest(more)}, name=name, base="loss", **general(more)
    ).tops[0]


def accuracy(
    model: Model,
    scores: Top,
    labels: Top,
    *,
    top_k: int = 1,
    phase: str | None = "test",
    name: str = "",
    **more: Any,
) -> Top:
    """The share of items whose label is among the top_k best scores. phase=None: in training, too."""
    params = {**({"top_k": top_k} if top_k != 1 else {}), **rest(more)}
    return model.add_layer(
        "Accuracy", [scores, labels], params, name=name, base="accuracy", phase=phase
    ).tops[0]
