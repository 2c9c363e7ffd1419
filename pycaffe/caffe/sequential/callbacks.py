"""What fit returns, and what it calls: the course of a training on arrays."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..model import ModelError

if TYPE_CHECKING:
    from .net import Sequential

Logs = dict[str, float]


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
        if math.isnan(value):
            return False
        if self.best is not None and self._sign * value >= self._sign * self.best - self.min_delta:
            return False
        self.best = value
        return True


class EarlyStopping(_Monitor):
    """Ends the training when `monitor` has not improved, by more than min_delta, for `patience` epochs in a
    row (0 means 1); what is no number has not improved.

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
        self.best, self.stopped_epoch, self._waited, self._kept = None, None, 0, []

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        if self.improved(logs):
            self._waited = 0
            if self.restore_best:
                self._kept = self.net.get_weights()
            return
        self._waited += 1
        if self._waited >= self.patience:
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

    def on_train_begin(self) -> None:
        folder = os.path.dirname(self.path)
        if "{" not in folder and folder and not os.path.isdir(folder):
            raise ModelError(f"Checkpoint: there is no folder '{folder}' to write into")

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        if self.best_only and not self.improved(logs):
            return
        try:
            path = Path(self.path.format(epoch=epoch, **logs))
        except (KeyError, IndexError, ValueError) as error:
            known = ", ".join(["epoch", *logs])
            raise ModelError(f"Checkpoint: '{self.path}' may hold {known}, and not {error}") from error
        self.net.model.save(weights=path)


def as_callbacks(given: Iterable[Callback] | Callback) -> list[Callback]:
    """Raises ModelError for what is no callback."""
    found = [given] if isinstance(given, Callback) else list(given)
    for callback in found:
        if not isinstance(callback, Callback):
            raise ModelError(f"callbacks are objects of caffe.sequential.Callback, not {callback!r:.60}")
    return found
