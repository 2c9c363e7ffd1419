"""Estimators in scikit-learn's own tools."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn", "1.6")
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from caffe import model as M
from caffe.estimator import NetClassifier, NetRegressor


def test_pipeline_and_grid_search() -> None:
    x, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    pipeline = make_pipeline(
        StandardScaler(), NetClassifier([M.Dense(8), M.ReLU()], epochs=15, batch_size=10)
    )
    grid = {"netclassifier__base_lr": [1e-6, 0.05], "netclassifier__layers": [[], [M.Dense(8), M.ReLU()]]}
    search = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(x, names)
    assert search.best_params_["netclassifier__base_lr"] == 0.05
    assert search.best_score_ > 0.9
    best = search.best_estimator_
    assert set(best.predict(x)) <= set(names) and best.score(x, names) > 0.93
    proba = best.predict_proba(x[:4])
    assert proba.shape == (4, 3)
    assert list(best[-1].classes_) == ["setosa", "versicolor", "virginica"]


def test_get_params_clone_and_repeatability() -> None:
    x, y = load_iris(return_X_y=True)
    net = NetClassifier(
        [M.Dense(4)],
        base_lr=0.02,
        epochs=2,
        seed=7,
        solver={"lr_policy": "step", "stepsize": 5, "gamma": 0.5},
    )
    assert net.get_params()["base_lr"] == 0.02
    copy = clone(net).set_params(epochs=2)
    a, b = net.fit(x, y).predict_proba(x), copy.fit(x, y).predict_proba(x)
    np.testing.assert_array_equal(a, b)
    assert net.n_features_in_ == 4 and len(net.history_["loss"]) == 2


def test_images_laid_flat() -> None:
    x, y = load_digits(return_X_y=True)
    net = NetClassifier([M.Conv(8, 3), M.MaxPool(2), M.ReLU()], input_shape=(1, 8, 8), epochs=10)
    assert cross_val_score(net, x[:600] / 16, y[:600], cv=2).mean() > 0.7
    with pytest.raises(M.ModelError, match="has 49 elements, and x 64 features"):
        NetClassifier(input_shape=(1, 7, 7)).fit(x, y)


def test_regression(rng: np.random.Generator) -> None:
    x = rng.normal(size=(300, 3))
    y = x @ [1.0, -2.0, 0.5] + 3
    net = NetRegressor(epochs=40, base_lr=0.05).fit(x, y)
    assert net.score(x, y) > 0.999 and net.predict(x).shape == (300,)
    both = NetRegressor(epochs=2).fit(x, np.stack([y, -y], axis=1))
    assert both.predict(x[:5]).shape == (5, 2)


def test_faults_as_scikit_learn_wants_them() -> None:
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        NetClassifier().predict([[1.0]])
    net = NetClassifier(epochs=1).fit([[0.0, 1.0], [1.0, 0.0]], ["a", "b"])
    with pytest.raises(ValueError, match="2 features"):
        net.predict([[1.0]])
    with pytest.raises(ValueError, match="NaN"):
        net.fit([[np.nan]], [0])
    assert pickle.loads(pickle.dumps(NetClassifier([M.Dense(3)], epochs=3))).epochs == 3


def test_fitted_estimators_are_pickled() -> None:
    x, y = load_iris(return_X_y=True)
    for net in (NetClassifier([M.Dense(4), M.ReLU()], epochs=2), NetRegressor(epochs=2)):
        net.fit(x, y)
        again = pickle.loads(pickle.dumps(net))
        np.testing.assert_array_equal(again.predict(x), net.predict(x))
        assert again.history_ == net.history_


@parametrize_with_checks([NetClassifier(epochs=20, base_lr=0.05), NetRegressor(epochs=20)])
def test_what_scikit_learn_asks_of_estimators(estimator, check) -> None:
    check(estimator)
