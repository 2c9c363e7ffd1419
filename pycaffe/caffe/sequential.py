"""Sequential: layers one behind the other, trained on arrays.

    from caffe import model as M
    net = caffe.Sequential([M.Conv(20, 5), M.MaxPool(2), M.Dense(500), M.ReLU(), M.Dense(10)])
    net.compile("softmax_loss", "SGD", metrics=["accuracy"], base_lr=0.01, momentum=0.9)
    history = net.fit(x, y, batch_size=64, epochs=5, validation_data=(x_test, y_test))
    labels = net.predict(x_new).argmax(axis=1)

Below it is a model (`net.model`, see caffe.model), and all that a model can do, this can, too: save plain
files, show its prototxt, give nets for other outputs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import models
from .model import Block, Model, ModelError, ModelNet, Top, functions, modules
from .net_summary import table
from .random_streams import Stream
from .solver_registry import solver_class

Arrays = tuple[Any, Any]
Metric = Callable[[np.ndarray, np.ndarray], float]
Logs = dict[str, float]

# Losses by the names that people know them by.
_LOSSES = {
    "cross_entropy": "softmax_loss",
    "binary_cross_entropy": "sigmoid_loss",
    "mse": "euclidean_loss",
}
# base_lr, where compile is not told: what is usual for the type.
_RATES = {"Adam": 1e-3, "RMSProp": 1e-3, "AdaDelta": 1.0}


class History:
    """What fit returns. history: {"loss": [one per epoch], "accuracy": ..., "val_loss": ...}. epoch: their
    numbers."""

    def __init__(self) -> None:
        self.epoch: list[int] = []
        self.history: dict[str, list[float]] = {}

    def append(self, epoch: int, logs: Mapping[str, float]) -> None:
        self.epoch.append(epoch)
        for name, value in logs.items():
            self.history.setdefault(name, []).append(value)

    def __repr__(self) -> str:
        last = ", ".join(f"{name} {values[-1]:.4g}" for name, values in self.history.items())
        return f"<caffe.sequential.History of {len(self.epoch)} epochs: {last}>"


class Callback:
    """Told about the course of fit; override what you need. `net` is the Sequential. Setting
    net.stop_training ends it after the epoch."""

    net: Sequential

    def on_train_begin(self) -> None: ...

    def on_epoch_end(self, epoch: int, logs: Logs) -> None: ...

    def on_train_end(self) -> None: ...


class _Monitor(Callback):
    """Follows one number of the logs."""

    def __init__(self, monitor: str, mode: str, min_delta: float = 0.0):
        if mode not in ("min", "max", "auto"):
            raise ModelError(f"mode must be 'min', 'max' or 'auto', not {mode!r}")
        self.monitor, self.min_delta = monitor, min_delta
        greater = mode == "max" or (mode == "auto" and "acc" in monitor)
        self._sign = -1.0 if greater else 1.0
        self.best: float | None = None

    def improved(self, logs: Logs) -> bool:
        if self.monitor not in logs:
            raise ModelError(
                f"{type(self).__name__} monitors '{self.monitor}', which this training does not have: "
                f"{', '.join(logs)} (val_... needs validation_data)"
            )
        value = logs[self.monitor]
        if self.best is not None and self._sign * value >= self._sign * self.best - self.min_delta:
            return False
        self.best = value
        return True


class EarlyStopping(_Monitor):
    """Ends the training when `monitor` has not improved, by more than min_delta, for `patience` epochs.

    mode: "min", "max", or "auto": the greater the better for accuracies only. restore_best: take back the
    parameters of the best epoch. stopped_epoch: when it ended, or None.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        *,
        patience: int = 0,
        min_delta: float = 0.0,
        mode: str = "auto",
        restore_best: bool = False,
    ):
        super().__init__(monitor, mode, min_delta)
        self.patience, self.restore_best = patience, restore_best
        self.stopped_epoch: int | None = None
        self._waited = 0
        self._kept: list[np.ndarray] = []

    def on_train_begin(self) -> None:
        self.best, self.stopped_epoch, self._waited = None, None, 0

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        if self.improved(logs):
            self._waited = 0
            if self.restore_best:
                self._kept = self.net.get_weights()
            return
        self._waited += 1
        if self._waited > self.patience:
            self.stopped_epoch = epoch
            self.net.stop_training = True

    def on_train_end(self) -> None:
        if self.restore_best and self._kept:
            self.net.set_weights(self._kept)


class Checkpoint(_Monitor):
    """Writes the parameters (.caffemodel or .h5) after each epoch, or with best_only after those in which
    `monitor` improved. path: may hold {epoch} and names of logs: "net_{epoch:02d}_{val_loss:.3f}.h5"."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        monitor: str = "val_loss",
        *,
        best_only: bool = False,
        mode: str = "auto",
    ):
        super().__init__(monitor, mode)
        self.path, self.best_only = os.fspath(path), best_only

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        if self.best_only and not self.improved(logs):
            return
        path = Path(self.path.format(epoch=epoch, **logs))
        self.net.model.save(weights=path)


class Sequential:
    """Layers one behind the other.

    layers: Blocks (M.Conv(20, 5), M.ReLU(), a registered module's M.MyBlock(...)) or functions of a top.
    seed: of first values, masks and the order of the data. device, engine: as of caffe.model.Model.
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
        self.layers = list(layers)
        self.stop_training = False
        self._options = {"name": name, "seed": seed, "device": device, "engine": engine}
        self._model: Model | None = None
        self._loss: str | Callable[..., Top] = "softmax_loss"
        self._metrics: list[tuple[str, Metric]] = []
        self._solver: tuple[str, dict[str, Any]] | None = None
        self._x: Top
        self._target: Top
        self._scores: Top
        self._nets: dict[str, ModelNet] = {}
        self._epochs = 0

    def add(self, layer: Block | Callable[[Top], Top]) -> None:
        """Put one more layer behind the others. Raises ModelError once the net is built."""
        if self._model is not None:
            raise ModelError("the net is built already: add layers before fit, predict and build")
        self.layers.append(layer)

    def compile(
        self,
        loss: str | Callable[..., Top] = "softmax_loss",
        optimizer: str = "SGD",
        metrics: Sequence[str | Metric] = (),
        **fields: Any,
    ) -> None:
        """Say how to train.

        loss: the name of a loss function of models ("softmax_loss", "euclidean_loss", "sigmoid_loss",
            "hinge_loss" ...; also "cross_entropy", "mse", "binary_cross_entropy"), or a layer function
            (model, scores, target) -> loss. The targets of softmax_loss and hinge_loss are integers (N,), of
            the others numbers of the scores' shape.
        optimizer: a solver's type. fields: of SolverParameter: base_lr (default 0.01; Adam 0.001) ...
        metrics: "accuracy", or functions (target, prediction) -> number, called with a whole epoch's arrays.
        Compiling again keeps the parameters. Raises ModelError, SolverError for unknown names.
        """
        if isinstance(loss, str):
            loss = _LOSSES.get(loss, loss)
            modules.find(loss)
        solver_class(optimizer)  # raises for an unknown one
        fields.setdefault("base_lr", _RATES.get(optimizer, 0.01))
        if optimizer == "SGD":
            fields.setdefault("momentum", 0.9)
        self._metrics = [self._metric(m) for m in metrics]
        if self._model is not None and loss != self._loss:
            raise ModelError("the net is built with another loss: make a new Sequential")
        self._loss, self._solver = loss, (optimizer, fields)
        if self._model is not None:
            self._minimize()

    def _metric(self, metric: str | Metric) -> tuple[str, Metric]:
        if callable(metric):
            return getattr(metric, "__name__", type(metric).__name__), metric
        if metric not in ("accuracy", "acc"):
            raise ModelError(f"unknown metric {metric!r}: 'accuracy', or a function (target, prediction)")
        return "accuracy", _accuracy

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
        model = Model(**self._options)  # type: ignore[arg-type]
        h = self._x = functions.input(model, (1, *input_shape))
        for layer in self.layers:
            h = layer(h)
            if not isinstance(h, Top):
                raise ModelError(f"{layer!r} gives {type(h).__name__} where one top is wanted")
        self._scores = h
        if target_shape is None:
            target_shape = () if self._takes_labels else h.shape[1:]
        self._target = functions.input(model, (1, *target_shape), name="label")
        make = modules.find(self._loss) if isinstance(self._loss, str) else self._loss
        self._loss_top = make(model, h, self._target)
        self._model = model
        if self._solver is not None:
            self._minimize()

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
        if self._model is None:
            if not self.layers:
                raise ModelError("the net has no layers")
            shape = None if y is None or self._takes_labels and y.ndim == 1 else np.shape(_column(y))[1:]
            self.build(x.shape[1:], shape)
        if y is None:
            return None
        return y if self._takes_labels and y.ndim == 1 else _column(y)

    # -- training ---------------------------------------------------------------------------------------

    def train_on_batch(self, x: Any, y: Any) -> Logs:
        """One update; returns {"loss": ..., "accuracy": ...} as of before it."""
        x, y = _checked(x, y)
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
        callbacks: Iterable[Callback] = (),
        verbose: bool = False,
    ) -> History:
        """Train on arrays, so many times through; called again, it goes on.

        x: (N, ...). y: (N,) labels, or targets (N, ...). The last batch of an epoch may be smaller.
        validation_data: (x, y) to evaluate after each epoch; validation_split: that share of the end of x
        and y instead. shuffle: anew in each epoch, in an order that follows from seed and epoch. verbose:
        print a line for each epoch. Returns the curves.
        Raises ModelError, LabelError for labels out of range, and what nets raise.
        """
        x, y = _checked(x, y)
        if batch_size < 1 or epochs < 0:
            raise ModelError(f"batch_size (={batch_size}) must be 1 or more, epochs (={epochs}) 0 or more")
        if validation_split:
            if not 0 < validation_split < 1:
                raise ModelError(f"validation_split (={validation_split}) must lie in [0, 1)")
            at = max(1, int(len(x) * (1 - validation_split)))
            validation_data = validation_data or (x[at:], y[at:])
            x, y = x[:at], y[:at]
        target = self._ready(x, y)
        history, listeners = History(), list(callbacks)
        self.stop_training = False
        for callback in listeners:
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
            for callback in listeners:
                callback.on_epoch_end(epoch, logs)
            if self.stop_training:
                break
        for callback in listeners:
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
        if self._loss == "softmax_loss":
            e = np.exp(scores - scores.max(axis=1, keepdims=True))
            return e / e.sum(axis=1, keepdims=True)
        if self._loss == "sigmoid_loss":
            return 0.5 * (1 + np.tanh(0.5 * scores))
        return scores

    # -- using ------------------------------------------------------------------------------------------

    def evaluate(self, x: Any, y: Any, batch_size: int = 32) -> Logs:
        """{"loss": the mean, "accuracy": ...} on these arrays, as the net is when testing."""
        x, y = _checked(x, y)
        target = self._ready(x, y)
        net, total, kept = self._net("test"), 0.0, []
        for rows in _slices(len(x), batch_size):
            loss, scores = net(x[rows], target[rows])  # type: ignore[index]
            total += float(loss) * len(x[rows])
            kept.append(np.array(scores))
        return {"loss": total / len(x), **self._measure(y, np.concatenate(kept))}

    def predict(self, x: Any, batch_size: int = 32) -> np.ndarray:
        """(N, ...): probabilities for softmax_loss and sigmoid_loss, else the last layer's values."""
        x = np.asarray(x)
        self._ready(x)
        net, kept = self._net("deploy"), []
        for rows in _slices(len(x), batch_size):
            kept.append(np.array(net(x[rows])))
        if not kept:
            raise ModelError("predict needs one item or more")
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
        from .proto_text import write

        if net or weights:
            self.model.save(net, weights)
        if deploy:
            write(self.model.to_proto("deploy"), deploy)

    def load(self, weights: str | os.PathLike[str]) -> None:
        """Copy parameters by layer name from a .caffemodel or .h5."""
        self.model.load(weights)

    def __repr__(self) -> str:
        return f"caffe.Sequential([{', '.join(map(repr, self.layers))}])"


def _slices(count: int, batch_size: int) -> Iterator[slice]:
    return (slice(start, start + batch_size) for start in range(0, count, batch_size))


def _checked(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x), np.asarray(y)
    for name, array in (("x", x), ("y", y)):
        if array.dtype.kind not in "fiub" or not array.ndim:
            raise ModelError(f"{name} must be an array of numbers, not {array.dtype} of shape {array.shape}")
    if len(x) != len(y) or not len(x):
        raise ModelError(f"x and y must have equally many items, 1 or more, not {len(x)} and {len(y)}")
    return x, y


def _column(y: np.ndarray) -> np.ndarray:
    return y[:, None] if y.ndim == 1 else y


def _accuracy(target: np.ndarray, prediction: np.ndarray) -> float:
    """The share of right answers: the best of several scores, or, for a single one, above a half."""
    if target.shape == prediction.shape or prediction.shape[1:] == (1,):
        return float(((prediction.reshape(target.shape) > 0.5) == (target > 0.5)).mean())
    return float((prediction.argmax(axis=1).reshape(target.shape) == target).mean())
