"""Estimators for scikit-learn: nets as steps of a Pipeline, with their settings searched by GridSearchCV.

    from caffe import model as M
    from caffe.estimator import NetClassifier
    search = GridSearchCV(
        make_pipeline(StandardScaler(), NetClassifier([M.Dense(32), M.ReLU()], epochs=20)),
        {"netclassifier__base_lr": [0.01, 0.1]},
    )
    search.fit(x, y)

Needs scikit-learn: pip install 'pycaffe[sklearn]'.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .model import Block, ModelError, Top
from .sequential import Sequential

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        f"caffe.estimator needs scikit-learn 1.6 or newer ({error}): pip install 'pycaffe[sklearn]'"
    ) from error

Layers = Sequence[Block | Callable[[Top], Top]]


class _NetEstimator(BaseEstimator):
    """What both estimators share. Every argument is kept under its name, as scikit-learn wants it."""

    def __init__(
        self,
        layers: Layers = (),
        *,
        optimizer: str = "SGD",
        base_lr: float = 0.01,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        solver: Mapping[str, Any] | None = None,
        batch_size: int = 32,
        epochs: int = 10,
        shuffle: bool = True,
        input_shape: tuple[int, ...] | None = None,
        seed: int = 0,
    ):
        self.layers = layers
        self.optimizer = optimizer
        self.base_lr = base_lr
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.solver = solver
        self.batch_size = batch_size
        self.epochs = epochs
        self.shuffle = shuffle
        self.input_shape = input_shape
        self.seed = seed

    def _train(self, x: np.ndarray, y: np.ndarray, loss: str, outputs: int) -> None:
        layers = [*copy.deepcopy(list(self.layers)), Block("fc", outputs)]
        net = Sequential(layers, name=type(self).__name__, seed=self.seed)
        fields: dict[str, Any] = {"base_lr": self.base_lr, "weight_decay": self.weight_decay}
        if self.optimizer not in ("AdaGrad", "RMSProp"):  # which have none
            fields["momentum"] = self.momentum
        net.compile(loss, self.optimizer, **{**fields, **(self.solver or {})})
        history = net.fit(self._shaped(x), y, self.batch_size, self.epochs, shuffle=self.shuffle)
        self.net_: Sequential = net
        self.history_: dict[str, list[float]] = history.history
        self.n_iter_ = self.epochs

    def _shaped(self, x: np.ndarray) -> np.ndarray:
        if self.input_shape is None:
            return x
        if int(np.prod(self.input_shape)) != x.shape[1]:
            raise ModelError(
                f"input_shape (={self.input_shape}) has {np.prod(self.input_shape)} elements, and x "
                f"{x.shape[1]} features"
            )
        return x.reshape(len(x), *self.input_shape)

    def _outputs(self, x: Any) -> np.ndarray:
        check_is_fitted(self)
        x = validate_data(self, x, reset=False, dtype="numeric")
        return self.net_.predict(self._shaped(x), max(self.batch_size, 256))


class NetClassifier(ClassifierMixin, _NetEstimator):
    """A net that tells classes apart, by softmax cross-entropy.

    layers: the hidden ones, as of caffe.Sequential; a Dense layer with one output for each class follows.
    optimizer: a solver's type. base_lr, momentum, weight_decay, and `solver`: fields of SolverParameter.
    batch_size, epochs, shuffle: as of Sequential.fit. input_shape: of one item, (1, 8, 8), for rows that are
    images laid flat. seed: the same seed gives the same net.

    fit(x, y): x (N, features), y (N,) labels of any kind. predict, predict_proba, score (accuracy).
    classes_, n_features_in_, net_ (the Sequential), history_ (its curves).
    """

    def fit(self, X: Any, y: Any) -> NetClassifier:
        """Train anew. Raises ValueError for arrays that are no training data."""
        x, y = validate_data(self, X, y, dtype="numeric")
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        self._train(x, labels, "softmax_loss", len(self.classes_))
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """(N, classes): probabilities, in the order of classes_."""
        return self._outputs(X)

    def predict(self, X: Any) -> np.ndarray:
        """(N,): the most probable class."""
        probabilities = self._outputs(X)
        return self.classes_[probabilities.argmax(axis=1)]


class NetRegressor(RegressorMixin, _NetEstimator):
    """A net that predicts numbers, by the Euclidean loss. Arguments as of NetClassifier.

    fit(x, y): y (N,) or (N, targets). predict, score (R²). n_features_in_, net_, history_.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output, tags.target_tags.multi_output = True, True
        return tags

    def fit(self, X: Any, y: Any) -> NetRegressor:
        """Train anew. Raises ValueError for arrays that are no training data."""
        x, y = validate_data(self, X, y, dtype="numeric", y_numeric=True, multi_output=True)
        self._flat = y.ndim == 1
        self._train(x, y, "euclidean_loss", 1 if y.ndim == 1 else y.shape[1])
        return self

    def predict(self, X: Any) -> np.ndarray:
        """(N,) or (N, targets), as y was."""
        values = self._outputs(X).astype(float)
        return values[:, 0] if self._flat else values
