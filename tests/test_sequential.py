"""Sequential: trained on arrays, against closed forms and the model below."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

import caffe
from caffe import model as M
from caffe.errors import LabelError, ShapeError
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
    assert stop.stopped_epoch == 2 and history.epoch == [0, 1, 2]
    assert sorted(p.name for p in Path().glob("*.h5")) == [f"net_0{i}.h5" for i in range(3)]
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
    with pytest.raises(M.ModelError, match=r"x.astype\(float\) makes numbers"):
        net.fit(np.zeros((2, 2), object), [0, 1])
    with pytest.raises(M.ModelError, match="array of numbers"):
        net.fit(np.array([["a"]]), [0])
    with pytest.raises(LabelError):
        net.fit(np.zeros((2, 2)), [0, 7])
    with pytest.raises(M.ModelError, match="monitors 'val_loss', which this training does not have"):
        net.fit(np.zeros((2, 2)), [0, 1], callbacks=[EarlyStopping()])
    with pytest.raises(AttributeError, match="no layer function 'dens'; did you mean 'dense'"):
        M.Dens(3)


@pytest.fixture
def rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=(12, 4)).astype(np.float32), rng.integers(0, 3, 12)


def flat(loss="softmax_loss", outputs: int = 3, **fields) -> caffe.Sequential:
    net = caffe.Sequential([M.Dense(5), M.ReLU(), M.Dense(outputs)], seed=1)
    net.compile(loss, **fields)
    return net


def test_labels_as_a_column_are_labels(rows) -> None:
    x, y = rows
    net = flat(metrics="accuracy")
    first = net.fit(x, y[:, None]).history
    assert first == flat(metrics=["accuracy"]).fit(x, y).history
    assert net.evaluate(x, y) == net.evaluate(x, y[:, None].astype(float))


def test_losses_may_be_given_as_functions_and_blocks(rows) -> None:
    x, y = rows
    expected = flat(metrics=["accuracy"])
    expected.fit(x, y)
    for loss in (
        M.softmax_loss,
        M.SoftmaxLoss(),
        M.SoftmaxLoss(weight=1.0),
        lambda m, s, t: m.softmax_loss(s, t),
    ):
        net = flat(loss, metrics=["accuracy"])
        net.fit(x, y)
        assert net.evaluate(x, y) == expected.evaluate(x, y)
        np.testing.assert_array_equal(net.predict(x), expected.predict(x))


def test_a_net_that_cannot_be_is_refused_and_may_be_tried_again(rows) -> None:
    x, y = rows
    net = flat()
    with pytest.raises(M.ModelError, match=r"of one-hot rows y.argmax\(axis=1\) makes labels"):
        net.fit(x, np.eye(3)[y])
    with pytest.raises(caffe.CaffeError, match="axis"):
        net.fit(x[:, 0], y)
    with pytest.raises(M.ModelError, match=r"labels are integers.*is -?\d\.5; for numbers, compile"):
        net.fit(x, y + 0.5)
    net.fit(x, y)
    weights = net.get_weights()
    with pytest.raises(ShapeError, match="4 inputs at first, now 2"):
        net.fit(x[:, :2], y)
    for before, after in zip(weights, net.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    assert net.predict(x).shape == (12, 3)


def test_errors_name_the_line_where_a_layer_was_written() -> None:
    line = sys._getframe().f_lineno
    net = caffe.Sequential(
        [
            M.Conv(4, 3),
            M.Conv(6, 3, group=4),
        ]
    )
    net.compile()
    with pytest.raises(caffe.CaffeError, match=rf"'conv2' \(Convolution, test_sequential\.py:{line + 4}\)"):
        net.fit(np.zeros((2, 1, 8, 8)), [0, 1])
    net = caffe.Sequential([M.Dense(3)])
    net.compile("contrastive_loss")
    with pytest.raises(
        caffe.CaffeError, match=rf"'loss' \(ContrastiveLoss, test_sequential\.py:{line + 11}\)"
    ):
        net.fit(np.zeros((2, 2)), [0, 1])
    with pytest.raises(
        M.ModelError, match=rf"M\.Dense\(\) \(test_sequential\.py:{line + 19}\): missing.*'num_output'"
    ):
        caffe.Sequential([M.Dense()]).predict(np.zeros((2, 2)))


def test_arguments_that_cannot_be(rows) -> None:
    x, y = rows
    net = flat()
    for call, about in [
        (lambda: net.fit(x, y, batch_size=0), "fit: batch_size must be an integer of 1 or more"),
        (lambda: net.fit(x, y, epochs=1.5), "fit: epochs must be an integer of 0 or more"),
        (lambda: net.evaluate(x, y, batch_size=-3), "evaluate: batch_size must be"),
        (lambda: net.predict(x, batch_size=2.5), "predict: batch_size must be"),
        (lambda: net.predict(x[:0]), "x must have one item or more"),
        (lambda: net.predict([["a"]]), "x must be an array of numbers"),
        (lambda: net.fit(x[:1], y[:1], validation_split=0.5), "validation_split needs two items"),
        (lambda: net.fit(x, y, validation_data=x), r"validation_data takes \(x, y\)"),
        (lambda: net.fit(x, y, validation_data=(x, y[:2])), "equally many items"),
        (lambda: net.fit(x, y, callbacks=[EarlyStopping]), "callbacks are objects"),
        (lambda: net.fit(x, y, callbacks=Checkpoint("none/net.h5")), "no folder 'none'"),
        (lambda: net.fit(x, y, callbacks=[Checkpoint("{val_loss}.h5")]), "may hold epoch, loss, and not"),
        (lambda: net.compile(None), "a loss is a name or a function"),
        (lambda: net.compile(optimizer=3), "the optimizer must be a solver's type"),
        (lambda: net.compile(metrics=["accuracy", "acc"]), "metrics of one name"),
        (lambda: caffe.Sequential([3]), r"a layer is M.Dense\(10\), or a function"),
        (lambda: caffe.Sequential([M.ReLU]).predict(x), r"write M.ReLU\(\)"),
        (lambda: caffe.Sequential().predict(x), "the net has no layers"),
        (lambda: flat(lr=0.1).fit(x, y), "is called base_lr here, not lr"),
    ]:
        with pytest.raises(M.ModelError, match=about):
            call()


def test_a_loss_that_is_no_number_is_no_improvement(rows) -> None:
    x, y = rows

    class Spoil(Callback):
        def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
            if epoch == 1:
                self.net.set_weights([np.full_like(w, np.nan) for w in self.net.get_weights()])

    stop = EarlyStopping("loss", patience=2, restore_best=True)
    net = flat("mse", 1, base_lr=1e-4)
    history = net.fit(x, x[:, 0], epochs=9, callbacks=[stop, Spoil()])
    assert history.epoch == [0, 1, 2, 3] and stop.stopped_epoch == 3
    assert np.isnan(history.history["loss"][2:]).all() and np.isfinite(net.get_weights()[0]).all()


def test_copies_and_pickles(rows) -> None:
    x, y = rows
    net = flat(metrics=["accuracy"])
    net.fit(x, y, epochs=2)
    for other in (pickle.loads(pickle.dumps(net)), copy.deepcopy(net)):
        np.testing.assert_array_equal(other.predict(x), net.predict(x))
        assert other.evaluate(x, y) == net.evaluate(x, y) and other.model is not net.model
        assert other.fit(x, y).epoch == [2]
        assert not np.array_equal(other.predict(x), net.predict(x))
    unbuilt = pickle.loads(pickle.dumps(flat()))
    assert unbuilt.fit(x, y).history == flat().fit(x, y).history
    with pytest.raises(caffe.CaffeError, match=r"a Model cannot be copied or pickled: m.save"):
        copy.deepcopy(net.model)
