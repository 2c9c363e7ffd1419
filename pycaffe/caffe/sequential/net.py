"""Sequential: the net."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .. import models
from ..errors import LayerError
from ..model import Block, Model, ModelError, ModelNet, Top, functions, modules
from ..model.graph import caller_place
from ..model.training import counted
from ..net_summary import table
from ..proto_text import write
from ..random_streams import Stream
from ..solver_registry import solver_class
from .arrays import Arrays, Metric, check_labels, column, items, metric_of, pairs, slices
from .callbacks import Callback, History, Logs, as_callbacks

# Losses by the names that people know them by.
_LOSSES = {
    "cross_entropy": "softmax_loss",
    "binary_cross_entropy": "sigmoid_loss",
    "mse": "euclidean_loss",
}
# base_lr, where compile is not told: what is usual for the type.
_RATES = {"Adam": 1e-3, "RMSProp": 1e-3, "AdaDelta": 1.0}


class Sequential:
    """Layers one behind the other.

    layers: Blocks (M.Conv(20, 5), M.ReLU(), a registered module's M.MyBlock(...)) or functions of a top.
    seed: of first values, masks and the order of the data. device, engine: as of caffe.model.Model.
    A copy, or one that was pickled, has the layers, settings and parameters; a training goes on in it without
    what its solver remembers (momentum, iterations).
    """

    def __init__(
        self,
        layers: Iterable[Block | Callable[[Top], Top]] = (),
        *,
        name: str = "sequential",
        seed: int | None = None,
        device: str | None = None,
        engine: str | None = None,
    ):
        self.layers = [_layer(layer) for layer in layers]
        self.stop_training = False
        self._options = {"name": name, "seed": seed, "device": device, "engine": engine}
        self._model: Model | None = None
        self._loss: str | Callable[..., Top] = "softmax_loss"
        self._loss_place = ""
        self._metrics: list[tuple[str, Metric]] = []
        self._solver: tuple[str, dict[str, Any]] | None = None
        self._x: Top
        self._target: Top
        self._scores: Top
        self._nets: dict[str, ModelNet] = {}
        self._epochs = 0

    def __getstate__(self) -> dict[str, Any]:
        names = ("layers", "_options", "_loss", "_loss_place", "_metrics", "_solver", "_epochs")
        state = {name: getattr(self, name) for name in names}
        if self._model is not None:
            state["_options"] = {**self._options, "seed": self._model.seed}
            state["built"] = (self._x.shape[1:], self._target.shape[1:], self.get_weights())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        Sequential.__init__(self, state["layers"])
        built = state.pop("built", None)
        vars(self).update(state)
        if built is not None:
            self.build(*built[:2])
            self.set_weights(built[2])

    def add(self, layer: Block | Callable[[Top], Top]) -> None:
        """Put one more layer behind the others. Raises ModelError once the net is built."""
        if self._model is not None:
            raise ModelError("the net is built already: add layers before fit, predict and build")
        self.layers.append(_layer(layer))

    def compile(
        self,
        loss: str | Callable[..., Top] = "softmax_loss",
        optimizer: str = "SGD",
        metrics: Sequence[str | Metric] | str = (),
        **fields: Any,
    ) -> None:
        """Say how to train.

        loss: the name of a loss function of models ("softmax_loss", "euclidean_loss", "sigmoid_loss",
            "hinge_loss" ...; also "cross_entropy", "mse", "binary_cross_entropy"), or a layer function
            (model, scores, target) -> loss, M.softmax_loss or M.SoftmaxLoss(ignore_label=9). The targets of
            softmax_loss and hinge_loss are integers (N,), of the others numbers of the scores' shape.
        optimizer: a solver's type. fields: of SolverParameter: base_lr (default 0.01; Adam 0.001) ...
        metrics: "accuracy", or functions (target, prediction) -> number, called with a whole epoch's arrays.
        Compiling again keeps the parameters. Raises ModelError, SolverError for unknown names.
        """
        loss = _named(loss)
        if isinstance(loss, str):
            loss = _LOSSES.get(loss, loss)
            modules.find(loss)
        elif not callable(loss):
            raise ModelError(f"a loss is a name or a function (model, scores, target), not {loss!r:.60}")
        if not isinstance(optimizer, str):
            raise ModelError(f"the optimizer must be a solver's type, such as 'SGD', not {optimizer!r:.60}")
        solver_class(optimizer)  # raises for an unknown one
        fields.setdefault("base_lr", _RATES.get(optimizer, 0.01))
        if optimizer == "SGD":
            fields.setdefault("momentum", 0.9)
        found = [metric_of(m) for m in ([metrics] if isinstance(metrics, str) else metrics)]
        if len(dict(found)) < len(found):
            raise ModelError(f"metrics of one name: {', '.join(name for name, _ in found)}")
        if self._model is not None and loss != self._loss:
            raise ModelError("the net is built with another loss: make a new Sequential")
        self._loss, self._loss_place, self._metrics = loss, caller_place(), found
        self._solver = (optimizer, fields)
        if self._model is not None:
            self._minimize()

    # -- building ---------------------------------------------------------------------------------------

    @property
    def model(self) -> Model:
        """The model below. Raises ModelError before build, fit or predict."""
        if self._model is None:
            raise ModelError("the net is not built yet: call build(input_shape), or fit")
        return self._model

    def build(self, input_shape: Sequence[int], target_shape: Sequence[int] | None = None) -> None:
        """Make the layers for items of this shape, without the batch: (1, 28, 28).

        target_shape: of one target; by default a label, or what the scores have.
        """
        if self._model is not None:
            return
        if not self.layers:
            raise ModelError("the net has no layers")
        model = Model(**self._options)  # type: ignore[arg-type]
        h = self._x = functions.input(model, (1, *input_shape))
        for layer in self.layers:
            made = layer(h)
            if not isinstance(made, Top):
                cure = f": write M.{made.written}()" if isinstance(made, Block) else ""
                raise ModelError(f"{layer!r} gives {type(made).__name__} where one top is wanted{cure}")
            h = made
        self._scores = h
        if target_shape is None:
            target_shape = () if self._takes_labels else h.shape[1:]
        self._target = functions.input(model, (1, *target_shape), name="label")
        self._loss_top = self._make_loss(model)
        try:
            _ = self._loss_top.shape  # a net that cannot be is refused here, and may be tried again
        except LayerError as error:
            if self._takes_labels and len(target_shape) == 1 and target_shape[0] > 1:
                raise ModelError(
                    f"{self._loss} takes one integer for each item, and y has {target_shape[0]} numbers: of "
                    "one-hot rows y.argmax(axis=1) makes labels"
                ) from error
            raise
        self._model = model
        if self._solver is not None:
            self._minimize()

    def _make_loss(self, model: Model) -> Top:
        made_at = self._loss_place  # noqa: F841  see caller_place
        make = modules.find(self._loss) if isinstance(self._loss, str) else self._loss
        loss = make(model, self._scores, self._target)
        if not isinstance(loss, Top):
            raise ModelError(f"the loss function gives {type(loss).__name__} where one top is wanted")
        return loss

    @property
    def _takes_labels(self) -> bool:
        return self._loss in ("softmax_loss", "hinge_loss", "infogain_loss", "multinomial_logistic_loss")

    def _minimize(self) -> None:
        optimizer, fields = self._solver or ("SGD", {})
        self.model.minimize(self._loss_top, optimizer, **fields)

    def _net(self, phase: str) -> ModelNet:
        if phase not in self._nets:
            if phase == "deploy":
                self._nets[phase] = self.model.net("deploy")
            else:
                self._nets[phase] = self.model.net(phase, [self._loss_top, self._scores])
        return self._nets[phase]

    def _ready(self, x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray | None:
        """Build the net for these arrays if it is not; y as the net takes it."""
        if y is not None and self._solver is None:
            raise ModelError("the net does not know how to train: call compile(loss, optimizer) first")
        if y is not None and self._takes_labels:
            check_labels(y)
        if self._model is None:
            shape = None if y is None or self._takes_labels and y.ndim == 1 else column(y).shape[1:]
            self.build(x.shape[1:], shape)
        if y is None:
            return None
        return y if self._takes_labels and y.ndim == 1 else column(y)

    # -- training ---------------------------------------------------------------------------------------

    def train_on_batch(self, x: Any, y: Any) -> Logs:
        """One update; returns {"loss": ..., "accuracy": ...} as of before it."""
        x, y = pairs(x, y)
        target = self._ready(x, y)
        loss, scores = self._update(x, target)
        return {"loss": loss, **self._measure(y, scores)}

    def _update(self, x: np.ndarray, target: Any) -> tuple[float, np.ndarray]:
        net, minimizer = self._net("train"), self.model.minimizer
        net.zero_grad()
        loss, scores = net(x, target)
        value, kept = float(loss), np.array(scores) if self._metrics else np.zeros(0)
        loss.backward()
        minimizer.step()
        return value, kept

    def fit(
        self,
        x: Any,
        y: Any,
        batch_size: int = 32,
        epochs: int = 1,
        *,
        validation_data: Arrays | None = None,
        validation_split: float = 0.0,
        shuffle: bool = True,
        callbacks: Iterable[Callback] | Callback = (),
        verbose: bool = False,
    ) -> History:
        """Train on arrays, so many times through; called again, it goes on.

        x: (N, ...). y: (N,) labels, or targets (N, ...). The last batch of an epoch may be smaller.
        validation_data: (x, y) to evaluate after each epoch; validation_split: that share of the end of x
        and y instead. shuffle: anew in each epoch, in an order that follows from seed and epoch. verbose:
        print a line for each epoch. Returns the curves.
        Raises ModelError, LabelError for labels out of range, and what nets raise.
        """
        x, y = pairs(x, y)
        batch_size, epochs = counted("fit: batch_size", batch_size, 1), counted("fit: epochs", epochs, 0)
        callbacks = as_callbacks(callbacks)
        if validation_split:
            if not 0 < validation_split < 1:
                raise ModelError(f"validation_split (={validation_split}) must lie in [0, 1)")
            if len(x) < 2:
                raise ModelError("validation_split needs two items or more")
            at = max(1, int(len(x) * (1 - validation_split)))
            validation_data = validation_data or (x[at:], y[at:])
            x, y = x[:at], y[:at]
        if validation_data is not None:
            if not isinstance(validation_data, (tuple, list)) or len(validation_data) != 2:
                raise ModelError("validation_data takes (x, y)")
            validation_data = pairs(*validation_data)
        target = self._ready(x, y)
        history = History()
        self.stop_training = False
        for callback in callbacks:
            callback.net = self
            callback.on_train_begin()
        for _ in range(epochs):
            epoch, self._epochs = self._epochs, self._epochs + 1
            logs = self._epoch(x, y, target, batch_size, self._order(len(x), epoch) if shuffle else None)
            if validation_data is not None:
                found = self.evaluate(*validation_data, batch_size=batch_size)
                logs |= {f"val_{name}": value for name, value in found.items()}
            history.append(epoch, logs)
            if verbose:
                print(f"epoch {epoch}: " + ", ".join(f"{name} = {value:.6g}" for name, value in logs.items()))
            for callback in callbacks:
                callback.on_epoch_end(epoch, logs)
            if self.stop_training:
                break
        for callback in callbacks:
            callback.on_train_end()
        return history

    def _order(self, count: int, epoch: int) -> np.ndarray:
        return Stream((self.model.seed, 0), "fit/shuffle").generator(epoch).permutation(count)

    def _epoch(
        self, x: np.ndarray, y: np.ndarray, target: Any, batch_size: int, order: np.ndarray | None
    ) -> Logs:
        total, kept = 0.0, []
        for start in range(0, len(x), batch_size):
            rows: Any = slice(start, start + batch_size)
            rows = rows if order is None else order[rows]
            loss, scores = self._update(x[rows], target[rows])
            total += loss * len(x[rows])
            kept.append(scores)
        logs = {"loss": total / len(x)}
        if self._metrics:
            logs |= self._measure(y if order is None else y[order], np.concatenate(kept))
        return logs

    def _measure(self, y: np.ndarray, scores: np.ndarray) -> Logs:
        if not self._metrics:
            return {}
        prediction = self._prediction(scores)
        return {name: float(metric(y, prediction)) for name, metric in self._metrics}

    def _prediction(self, scores: np.ndarray) -> np.ndarray:
        """What predict gives for these scores."""
        kind = self._loss_top.layer.type
        if kind == "SoftmaxWithLoss":
            e = np.exp(scores - scores.max(axis=1, keepdims=True))
            return e / e.sum(axis=1, keepdims=True)
        if kind == "SigmoidCrossEntropyLoss":
            return 0.5 * (1 + np.tanh(0.5 * scores))
        return scores

    # -- using ------------------------------------------------------------------------------------------

    def evaluate(self, x: Any, y: Any, batch_size: int = 32) -> Logs:
        """{"loss": the mean, "accuracy": ...} on these arrays, as the net is when testing."""
        x, y = pairs(x, y)
        batch_size = counted("evaluate: batch_size", batch_size, 1)
        target = self._ready(x, y)
        net, total, kept = self._net("test"), 0.0, []
        for rows in slices(len(x), batch_size):
            loss, scores = net(x[rows], target[rows])  # type: ignore[index]
            total += float(loss) * len(x[rows])
            kept.append(np.array(scores))
        return {"loss": total / len(x), **self._measure(y, np.concatenate(kept))}

    def predict(self, x: Any, batch_size: int = 32) -> np.ndarray:
        """(N, ...): probabilities for softmax_loss and sigmoid_loss, else the last layer's values."""
        x, batch_size = items("x", x), counted("predict: batch_size", batch_size, 1)
        self._ready(x)
        net, kept = self._net("deploy"), []
        for rows in slices(len(x), batch_size):
            kept.append(np.array(net(x[rows])))
        return np.concatenate(kept)

    def summary(self) -> str:
        """A table of the layers: shapes, parameters, multiply-adds for one item."""
        net = self._net("deploy")
        rows = table(net)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(f"{cell:{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        return "\n".join([*lines, str(models.summary(net))])

    def get_weights(self) -> list[np.ndarray]:
        """Copies of all parameters, in the order of model.parameters."""
        return [p.data.copy() for p in self.model.parameters.values()]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Overwrite all parameters. Raises ModelError for another number or other shapes."""
        parameters = list(self.model.parameters.values())
        shapes, given = [p.shape for p in parameters], [np.shape(w) for w in weights]
        if shapes != given:
            raise ModelError(f"set_weights needs arrays of the shapes {shapes}, not {given}")
        for parameter, values in zip(parameters, weights, strict=True):
            parameter.data[...] = values

    def save(
        self,
        net: str | os.PathLike[str] = "",
        weights: str | os.PathLike[str] = "",
        deploy: str | os.PathLike[str] = "",
    ) -> None:
        """Write plain files: the prototxt with the loss, the parameters, and the prototxt of the net as
        predict uses it (for caffe.Net, caffe.Classifier, OpenCV)."""
        if net or weights:
            self.model.save(net, weights)
        if deploy:
            write(self.model.to_proto("deploy"), deploy)

    def load(self, weights: str | os.PathLike[str]) -> None:
        """Copy parameters by layer name from a .caffemodel or .h5."""
        self.model.load(weights)

    def __repr__(self) -> str:
        return f"caffe.Sequential([{', '.join(map(repr, self.layers))}])"


def _layer(layer: Any) -> Any:
    if not callable(layer):
        raise ModelError(f"a layer is M.Dense(10), or a function of a top, not {layer!r:.60}")
    return layer


def _named(loss: Any) -> Any:
    """The name of a loss that is a layer function as it is: M.softmax_loss, M.SoftmaxLoss()."""
    if isinstance(loss, Block) and not loss.args and not loss.more:
        return loss.function
    name = getattr(loss, "__name__", "")
    known = name if name in modules.function_names() else ""
    return known if known and inspect.unwrap(loss) is modules.find(known) else loss
