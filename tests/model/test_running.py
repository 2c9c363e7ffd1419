"""Nets of a model: called with arrays, run backward, controlled by Python."""

from __future__ import annotations

import os
import sys
import threading

import numpy as np
import pytest

import caffe
from caffe import model as M


def linear() -> tuple[M.Model, M.Top, M.Top]:
    m = M.Model(seed=1)
    x = m.input((1, 3), name="x")
    return m, x, m.fc(x, 2, bias=False)


def test_run_gives_arrays() -> None:
    m, x, y = linear()
    w = m.parameters["fc1/weight"].data
    for count in (1, 5, 2):
        batch = np.arange(3.0 * count).reshape(count, 3)
        np.testing.assert_allclose(m.run(y, {x: batch}), batch @ w.T, rtol=1e-6)
    both = m.run([y, x], {x: np.ones((1, 3))})
    assert isinstance(both, tuple) and both[1].tolist() == [[1, 1, 1]]
    net = m.net("test")
    np.testing.assert_allclose(m.run(net, {x: np.ones((2, 3))}), np.ones((2, 3)) @ w.T, rtol=1e-6)


def test_calls_by_place_name_and_top() -> None:
    m, x, y = linear()
    net = m.net("test", outputs=y)
    batch = np.ones((2, 3))
    expected = batch @ m.parameters["fc1/weight"].data.T
    for out in (net(batch), net(x=batch), net({x: batch}), net({"x": batch})):
        np.testing.assert_allclose(np.asarray(out), expected, rtol=1e-6)
    np.testing.assert_allclose(net.blob(y).data, expected, rtol=1e-6)
    assert net.top_names["fc1"] == ["fc1"], "a caffe.Net in all else"
    with pytest.raises(M.ModelError, match="has no input 'y'"):
        net(y=batch)
    with pytest.raises(M.ModelError, match="has 1 inputs"):
        net(batch, batch)
    with pytest.raises(M.ModelError, match="array of numbers"):
        net(["a"])


def test_backward_from_anywhere() -> None:
    m, x, y = linear()
    net = m.net("train", outputs=y, force_backward=True)
    batch, diff = np.array([[1.0, 2, 3]]), np.array([[1.0, -1]])
    net.zero_grad()
    net(batch).backward(diff)
    w = m.parameters["fc1/weight"]
    np.testing.assert_allclose(w.diff, diff.T @ batch)
    np.testing.assert_allclose(net.blob(x).diff, diff @ w.data, rtol=1e-6)
    net(batch).backward(diff)
    np.testing.assert_allclose(w.diff, 2 * diff.T @ batch)
    net.zero_grad()
    assert not w.diff.any()
    with pytest.raises(M.ModelError, match="is no loss"):
        net(batch).backward()
    with pytest.raises(M.ModelError, match="force_backward=True"):
        m.net("train", outputs=y)(batch).backward(diff)


def test_gradients_of_two_nets_add_up() -> None:
    """One model, two objectives, each with a net of its own."""
    m = M.Model(seed=1)
    x = m.input((1, 3), name="x")
    t, u = m.input((1, 2), name="t"), m.input((1, 2), name="u")
    y = m.fc(x, 2, bias=False)
    one, two = m.euclidean_loss(y, t), m.euclidean_loss(y, u)
    a, b = m.net("train", [one]), m.net("train", [two])
    solver = m.minimize({one: 1.0, two: 1.0}, "SGD", base_lr=0.5)
    batch = np.array([[1.0, 0, 2]])
    w = m.parameters["fc1/weight"]
    before = w.data.copy()
    solver.zero_grad()
    a(batch, [[1.0, 1]]).backward()
    b(batch, [[0.0, 3]]).backward()
    out = batch @ before.T
    gradient = ((out - [[1, 1]]) + (out - [[0, 3]])).T @ batch
    np.testing.assert_allclose(w.diff, gradient, rtol=1e-5)
    solver.step()
    np.testing.assert_allclose(w.data, before - 0.5 * gradient, rtol=1e-5)
    assert solver.iter == 1 and solver.lr == 0.5


def test_the_objective() -> None:
    m = M.Model(seed=1)
    x = m.input((1, 3))
    y = m.fc(x, 2)
    a, b = m.euclidean_loss(y, m.input((1, 2), name="t")), m.reduction(y)
    m.minimize(b, base_lr=1)
    assert [m.net("train").blob_loss_weights[n] for n in (a.name, b.name)] == [0, 1]
    m.minimize({a: 2, b: 0.5}, base_lr=1)
    assert [m.net("train").blob_loss_weights[n] for n in (a.name, b.name)] == [2, 0.5]
    m.minimize(a, base_lr=1)
    with pytest.raises(M.ModelError, match="must be tops of this model"):
        m.minimize(linear()[2], base_lr=1)
    test = m.accuracy(y, m.input((1,), name="u"))
    with pytest.raises(M.ModelError, match=r"layer 'accuracy' .*is for testing only"):
        m.minimize(test, base_lr=1)
    for wrong in (3, [3], "loss"):
        with pytest.raises(M.ModelError, match="must be tops of this model"):
            m.minimize(wrong, base_lr=1)  # type: ignore[arg-type]
    for word in ("lr", "learning_rate"):
        with pytest.raises(M.ModelError, match="is called base_lr here"):
            m.minimize(a, **{word: 1})
    with pytest.raises(M.ModelError, match="needs base_lr"):
        m.minimize(a)
    with pytest.raises(caffe.CaffeError, match="Unknown solver type: Adma"):
        m.minimize(a, "Adma", base_lr=1)
    with pytest.raises(caffe.CaffeError, match="no field 'momentun'; did you mean 'momentum'"):
        m.minimize(a, base_lr=1, momentun=1)
    with pytest.raises(M.ModelError, match="call m.minimize"):
        linear()[0].fit(1)


def test_a_blob_that_is_overwritten_is_not_shown() -> None:
    m = M.Model(seed=1)
    x = m.input((1, 3))
    a = m.fc(x, 4)
    b = m.relu(a)
    net = m.net("test")
    net(np.ones((1, 3)))
    with pytest.raises(
        M.ModelError, match=r"'fc1' is overwritten in this net, by layer 'relu1' \(test_running"
    ):
        net.blob(a)
    before, after = m.run([a, b], {x: np.ones((1, 3))})
    np.testing.assert_array_equal(np.maximum(before, 0), after)
    assert before.min() < 0


def test_nets_and_tops_are_objects_of_the_model() -> None:
    (m, x, y), (other, _, z) = linear(), linear()
    for wrong in ("fc1", ["fc1"], 3, m.parameters["fc1/weight"], z):
        for ask in (
            m.run,
            lambda t: m.to_proto("test", t),
            lambda t: m.to_proto("deploy", t),
            lambda t: m.net("test", t),
            lambda t: m.net("test", y, t),
        ):
            with pytest.raises(M.ModelError, match="must be tops of this model"):
                ask(wrong)
    with pytest.raises(M.ModelError, match="run takes nets that m.net"):
        m.run(caffe.Net(m.to_proto("test"), caffe.TEST))
    with pytest.raises(M.ModelError, match="run takes nets that m.net"):
        m.run(other.net("test"))
    with pytest.raises(M.ModelError, match=r"feed must be a dict \{top: array\}, not ndarray"):
        m.run(y, np.ones((1, 3)))  # type: ignore[arg-type]
    with pytest.raises(M.ModelError, match="the keys of feed must be tops of this model, not 'x'"):
        m.run(y, {"x": np.ones((1, 3))})  # type: ignore[dict-item]
    with pytest.raises(M.ModelError, match="input 'x' takes an array of numbers: .*inhomogeneous"):
        m.run(y, {x: [[1, 2], [3]]})
    assert m.net("test", (t for t in [y]), x).wanted == ["fc1"]  # type: ignore[arg-type]


def test_what_backward_begins_with_has_the_outputs_shape() -> None:
    m, x, y = linear()
    out = m.net("train", y, force_backward=True)(np.ones((2, 3)))
    with pytest.raises(M.ModelError, match=r"'fc1' has shape \(2, 2\), the gradient \(7, 7\)"):
        out.backward(np.ones((7, 7)))
    out.backward(1.0)
    np.testing.assert_allclose(m.parameters["fc1/weight"].diff, np.full((2, 3), 2))


def test_numbers_of_fit() -> None:
    m = M.Model(seed=1)
    x, y = m.data((np.ones((4, 3)), np.zeros(4)), 2)
    score = m.fc(x, 2)
    m.minimize(m.softmax_loss(score, y), base_lr=0.1)
    for arguments in (
        {"iterations": -1},
        {"iterations": 2.0},
        {"iterations": "2"},
        {"iterations": 2, "test_every": -1},
        {"iterations": 2, "test_every": 1, "test_batches": 0},
        {"iterations": 2, "snapshot": -1},
    ):
        with pytest.raises(M.ModelError, match=r"fit: \w+ must be an integer of [01] or more"):
            m.fit(**arguments)
    assert m.minimizer.iter == 0
    aimless = M.Model(seed=1)
    aimless.fc(aimless.data(np.ones((4, 3)), 2), 2)
    aimless.minimize(base_lr=0.1)
    with pytest.raises(M.ModelError, match="the training net has no loss"):
        aimless.fit(1)


def test_names_devices_and_seeds() -> None:
    for make in (lambda: M.Model(3), lambda: M.Model(device=0), lambda: M.Model(seed=1.5)):
        with pytest.raises(M.ModelError):
            make()
    m = M.Model()
    with pytest.raises(M.ModelError, match="the name must be a str, not 3"):
        m.input((1, 2), name=3)
    with pytest.raises(M.ModelError, match="the name must be a str, not 3"), m.scope(3):
        pass
    with pytest.raises(M.ModelError, match=r"kernel_size takes a number or \(height, width\)"):
        m.conv(m.input((1, 1, 9, 9)), 3, (3, 2, 1))
    with pytest.raises(M.ModelError, match="int is no layer"):
        m.python(layer=int)
    with pytest.raises(M.ModelError, match="give a class, or the names of module and class"):
        m.python(layer="Double")


def test_python_layers(tmp_path, monkeypatch) -> None:
    (tmp_path / "doubling_layers.py").write_text(
        "import caffe\n"
        "class Double(caffe.Layer):\n"
        "    def reshape(self, bottom, top): top[0].reshape(*bottom[0].data.shape)\n"
        "    def forward(self, bottom, top): top[0].data[...] = 2 * bottom[0].data\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import doubling_layers

    m = M.Model()
    x = m.input((1, 2))
    y = m.python(x, layer=doubling_layers.Double)
    z = m.python(x, layer="Double", module="doubling_layers")
    assert m.run(y, {x: [[1.0, 2]]}).tolist() == m.run(z, {x: [[1.0, 2]]}).tolist() == [[2, 4]]


def test_ambient_models() -> None:
    M.reset_default()
    a = M.fc(M.input((1, 2)), 3)
    assert a.model is M.current()
    with M.Model("outer") as outer:
        b = M.fc(M.input((1, 2)), 3)
        with M.Model("inner") as inner:
            assert M.input((1, 1)).model is inner
            assert M.relu(b).model is outer, "a top knows its model"
        assert M.input((1, 1), model=inner).model is inner
        assert M.current() is outer
    M.reset_default()
    assert M.current() is not a.model


def test_settings_hold_while_nets_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAFFE_ENGINE", "onednn")
    m = M.Model(engine="reference", device="cpu")
    y = m.conv(m.input((1, 1, 8, 8)), 2)
    net = m.net("test", y)
    assert all(step.kernel.engine == "reference" for step in net._steps)
    assert os.environ["CAFFE_ENGINE"] == "onednn"
    with pytest.raises(M.ModelError, match="device must be 'cpu', 'gpu' or"):
        M.Model(device="tpu")


def test_models_in_threads_keep_their_engines_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAFFE_ENGINE", raising=False)
    faults: list[object] = []
    both = threading.Barrier(2, timeout=60)

    class Meet(caffe.Layer):
        """Lets the other thread's net be built while this one is."""

        def setup(self, bottom, top):
            both.wait()

        def reshape(self, bottom, top):
            top[0].reshape(*bottom[0].shape)

    monkeypatch.setattr(sys.modules[__name__], "Meet", Meet, raising=False)
    Meet.__qualname__ = "Meet"

    def build(engine: str) -> None:
        try:
            m = M.Model(engine=engine, seed=1)
            y = m.conv(m.python(m.input((1, 1, 8, 8)), layer=Meet), 2)
            engines = [s.kernel.engine for s in m.net("test", y)._steps]
            if engines[-1] != engine:
                faults.append((engine, engines))
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=build, args=(name,)) for name in ("reference", "onednn")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults and "CAFFE_ENGINE" not in os.environ
    with pytest.raises(M.ModelError, match="engine must be one of reference, .*not 'cudann'"):
        M.Model(engine="cudann")
