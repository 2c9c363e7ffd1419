"""Sequential: trained on arrays, against closed forms and the model below."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import caffe
from caffe import model as M
from caffe.errors import LabelError
from caffe.resources import data_path
from caffe.sequential import Callback, Checkpoint, EarlyStopping


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    with np.load(data_path("models", "digits", "digits.npz")) as arrays:
        return (arrays["pixels"][:, None] / 16).astype(np.float32), arrays["labels"].astype(int)


def small(seed: int = 1, **fields) -> caffe.Sequential:
    net = caffe.Sequential(
        [M.Conv(8, 3), M.MaxPool(2), M.Dense(32), M.ReLU(), M.Dropout(0.2), M.Dense(10)], seed=seed
    )
    net.compile(metrics=["accuracy"], **{"base_lr": 0.05, **fields})
    return net


def test_digits(digits, capsys) -> None:
    x, y = digits
    net = small()
    history = net.fit(x[:1500], y[:1500], 60, epochs=6, validation_data=(x[1500:], y[1500:]), verbose=True)
    assert history.epoch == list(range(6)) and set(history.history) == {
        "loss",
        "accuracy",
        "val_loss",
        "val_accuracy",
    }
    assert history.history["val_accuracy"][-1] > 0.9
    assert capsys.readouterr().out.count("epoch") == 6
    probabilities = net.predict(x[1500:], 100)
    assert probabilities.shape == (297, 10)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    right = (probabilities.argmax(axis=1) == y[1500:]).mean()
    assert right == pytest.approx(net.evaluate(x[1500:], y[1500:])["accuracy"])
    loss = -np.log(probabilities[np.arange(297), y[1500:]]).mean()
    assert net.evaluate(x[1500:], y[1500:], 50)["loss"] == pytest.approx(loss, rel=1e-4)


def test_repeatable_and_continued(digits) -> None:
    x, y = digits
    whole, parts, other = small(), small(), small(seed=2)
    whole.fit(x[:200], y[:200], 32, epochs=2)
    parts.fit(x[:200], y[:200], 32)
    parts.fit(x[:200], y[:200], 32)
    other.fit(x[:200], y[:200], 32, epochs=2)
    for a, b in zip(whole.get_weights(), parts.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(whole.get_weights()[0], other.get_weights()[0])


def test_linear_regression_finds_the_coefficients(rng) -> None:
    x = rng.normal(size=(400, 2))
    y = x @ [2.0, 1.5] + 0.5
    net = caffe.Sequential([M.Dense(1)], seed=0)
    net.compile("mse", "SGD", base_lr=0.1)
    history = net.fit(x, y, 50, epochs=30)
    weight, bias = net.get_weights()
    np.testing.assert_allclose(weight.ravel(), [2, 1.5], atol=1e-3)
    np.testing.assert_allclose(bias, 0.5, atol=1e-3)
    assert history.history["loss"][-1] < 1e-5
    np.testing.assert_allclose(net.predict(x)[:, 0], y, atol=1e-2)


def test_binary(rng) -> None:
    x = rng.normal(size=(200, 3))
    y = (x[:, 0] > 0).astype(int)
    net = caffe.Sequential([M.Dense(1)], seed=0)
    net.compile("binary_cross_entropy", "Adam", metrics=["accuracy"], base_lr=0.05)
    net.fit(x, y, 20, epochs=20)
    assert net.evaluate(x, y)["accuracy"] > 0.95
    assert ((net.predict(x) > 0) & (net.predict(x) < 1)).all()


def test_one_update_by_hand(rng) -> None:
    x, y = rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=(4, 2)).astype(np.float32)
    net = caffe.Sequential([M.Dense(2, bias=False)], seed=0)
    net.compile("euclidean_loss", "SGD", base_lr=0.1, momentum=0)
    net.build((3,))
    w = net.get_weights()[0]
    logs = net.train_on_batch(x, y)
    error = x @ w.T - y
    assert logs == {"loss": pytest.approx((error**2).sum() / 8, rel=1e-5)}
    np.testing.assert_allclose(net.get_weights()[0], w - 0.1 * error.T @ x / 4, rtol=1e-5)


def test_metrics_see_targets_and_predictions(rng) -> None:
    seen = []

    def spread(target: np.ndarray, prediction: np.ndarray) -> float:
        seen.append((target.shape, prediction.shape))
        return float(prediction.max())

    net = caffe.Sequential([M.Dense(3)], seed=0)
    net.compile(metrics=[spread])
    logs = net.fit(rng.normal(size=(10, 2)), rng.integers(0, 3, 10), 4).history
    assert seen == [((10,), (10, 3))] and 1 / 3 < logs["spread"][0] <= 1


def test_early_stopping_and_checkpoints(digits, rng) -> None:
    x, y = digits

    class Worse(Callback):
        """Spoils the net after epoch 1, so that the validation loss rises."""

        def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
            if epoch == 1:
                self.kept = self.net.get_weights()
            if epoch >= 1:
                self.net.set_weights([rng.normal(size=w.shape) * 5 for w in self.kept])

    worse = Worse()
    stop = EarlyStopping(patience=1, restore_best=True)
    best = Checkpoint("best.caffemodel", best_only=True)
    each = Checkpoint("net_{epoch:02d}.h5")
    net = small(base_lr=0.001)
    history = net.fit(
        x[:300],
        y[:300],
        30,
        epochs=9,
        validation_split=0.2,
        callbacks=[stop, best, each, worse],
    )
    assert stop.stopped_epoch == 3 and history.epoch == [0, 1, 2, 3]
    assert sorted(p.name for p in Path().glob("*.h5")) == [f"net_0{i}.h5" for i in range(4)]
    for a, b in zip(net.get_weights(), worse.kept, strict=True):
        np.testing.assert_array_equal(a, b)
    other = small()
    other.build((1, 8, 8))
    other.load("best.caffemodel")
    np.testing.assert_array_equal(other.get_weights()[0], worse.kept[0])


def test_plain_files(digits) -> None:
    x, y = digits
    net = small()
    net.fit(x[:64], y[:64])
    net.save("net.prototxt", "net.caffemodel", deploy="deploy.prototxt")
    plain = caffe.Net("deploy.prototxt", "net.caffemodel", caffe.TEST)
    plain.blobs["data"].reshape(5, 1, 8, 8)
    np.testing.assert_array_equal(plain.forward(data=x[:5])["prob"], net.predict(x[:5]))


def test_summary(digits) -> None:
    net = small()
    net.build((1, 8, 8))
    text = net.summary()
    assert "conv1" in text and "2,746 parameters" in text, text


def test_functions_and_registered_blocks_are_layers() -> None:
    net = caffe.Sequential([M.Dense(4), lambda x: M.add(x, M.relu(x)), M.Dense(2)], seed=0)
    net.compile()
    net.fit(np.zeros((4, 3)), [0, 1, 0, 1], 2)
    assert "Eltwise" in str(net.model.to_proto())


def test_faults() -> None:
    net = caffe.Sequential([M.Dense(3)])
    with pytest.raises(M.ModelError, match="call compile"):
        net.fit(np.zeros((2, 2)), [0, 1])
    with pytest.raises(M.ModelError, match="not built yet"):
        net.get_weights()
    with pytest.raises(M.ModelError, match="no layer function 'softmx_loss'; did you mean 'softmax_loss'"):
        net.compile("softmx_loss")
    with pytest.raises(caffe.CaffeError, match="Unknown solver type: SDG"):
        net.compile(optimizer="SDG")
    with pytest.raises(M.ModelError, match="unknown metric 'f1'"):
        net.compile(metrics=["f1"])
    net.compile()
    with pytest.raises(M.ModelError, match="equally many items"):
        net.fit(np.zeros((2, 2)), [0])
    with pytest.raises(M.ModelError, match="array of numbers"):
        net.fit(np.array([["a"]]), [0])
    with pytest.raises(LabelError):
        net.fit(np.zeros((2, 2)), [0, 7])
    with pytest.raises(M.ModelError, match="monitors 'val_loss', which this training does not have"):
        net.fit(np.zeros((2, 2)), [0, 1], callbacks=[EarlyStopping()])
    with pytest.raises(AttributeError, match="no layer function 'dens'; did you mean 'dense'"):
        M.Dens(3)
