"""Parameters: one set of values for all nets, sharing, multipliers, first values."""

from __future__ import annotations

import numpy as np
import pytest

import caffe
from caffe import model as M
from caffe.errors import FillerError


def two_layers(seed: int = 1) -> tuple[M.Model, M.Top, M.Top]:
    m = M.Model(seed=seed)
    x = m.input((2, 3))
    a = m.fc(x, 4)
    return m, x, m.fc(a, 5, bias=False)


def test_names_and_info() -> None:
    m, x, y = two_layers()
    assert list(m.parameters) == ["fc1/weight", "fc1/bias", "fc2/weight"]
    info = m.param_info("fc1/weight")
    assert (info.shape, info.lr_mult, info.decay_mult, info.layers) == ((4, 3), 1.0, 1.0, ("fc1",))
    assert info.filler is not None and info.filler.type == "xavier"
    assert info.gradient.shape == (4, 3)
    assert y.layer.parameters == (m.parameters["fc2/weight"],)
    with pytest.raises(M.ModelError, match="no parameter 'fc1/wieght'; did you mean 'fc1/weight'"):
        m.param_info("fc1/wieght")


def test_all_nets_have_the_same_memory() -> None:
    m, x, y = two_layers()
    first, second = m.net("train"), m.net("test")
    held = m.parameters["fc1/weight"].data
    third = m.net("deploy")
    for net in (first, second, third):
        assert net.params["fc1"][0].data_mem is m.parameters["fc1/weight"].blob.data_mem
    held[...] = 1
    m.parameters["fc1/bias"].data[...] = 0
    m.parameters["fc2/weight"].data[...] = 1
    np.testing.assert_array_equal(third(np.ones((1, 3))).data, np.full((1, 5), 12.0))


def test_values_follow_from_seed_and_names_alone() -> None:
    a, b, c = two_layers()[0], two_layers()[0], two_layers(2)[0]
    b.net("deploy")
    w = [m.parameters["fc2/weight"].data.copy() for m in (a, b, c)]
    np.testing.assert_array_equal(w[0], w[1])
    assert not np.array_equal(w[0], w[2])


def test_init_draws_anew_in_place() -> None:
    m, x, y = two_layers()
    net = m.net("test")
    before = m.parameters["fc1/weight"].data.copy()
    held = net.params["fc1"][0].data
    m.init(seed=9)
    assert not np.array_equal(held, before)
    np.testing.assert_array_equal(held, two_layers(9)[0].parameters["fc1/weight"].data)
    m.init(seed=1)
    np.testing.assert_array_equal(held, before)


def test_arguments_of_parameters() -> None:
    m = M.Model(seed=1)
    for arguments, about in [
        (("w", (-1, 2)), "a shape of numbers of 1 or more"),
        (("w", (2.5,)), "a shape of numbers of 1 or more"),
        (("", (2,)), "the name must be a str"),
        (("w", (2,), [1]), "a filler is a type, a number or a dict"),
        (("w", (2,), None, "much"), "lr_mult of 'w' must be a number"),
    ]:
        with pytest.raises(M.ModelError, match=about):
            m.create_parameter(*arguments)
    with pytest.raises(FillerError, match="Unknown filler name: xavir; did you mean 'xavier'"):
        m.create_parameter("w", (2, 3), "xavir")
    w = m.create_parameter("w", 3, 2.0, lr_mult=4)
    info = m.param_info(w)
    assert (info.shape, info.lr_mult, info.layers, info.gradient) == ((3,), 4, (), None)
    with pytest.raises(M.ModelError, match="a parameter of this model, or its name"):
        M.Model().param_info(w)
    x = m.input((2, 3))
    before = len(m.layers)
    for arguments in ({"weight": np.ones((4, 3))}, {"bias": np.ones(4)}, {"bias": None}, {"bias": 0}):
        with pytest.raises(M.ModelError, match=r"(weight|bias).* takes a parameter of this model"):
            m.fc(x, 4, **arguments)
    assert len(m.layers) == before, "what was refused has left nothing behind"


def test_a_filler_that_fails_is_forgotten() -> None:
    m, x, y = two_layers()
    bias = m.parameters["fc1/bias"]
    values = m.parameters["fc1/weight"].data.copy()
    m.init_net[bias] = 0.5
    with pytest.raises(FillerError):
        m.init_net[bias] = {"type": "uniform", "min": 2, "max": 1}
    with pytest.raises(FillerError, match="Unknown filler name"):
        m.init_net[bias] = "xavir"
    assert dict(m.init_net) == {bias: 0.5}
    m.init()
    assert (bias.data == 0.5).all()
    np.testing.assert_array_equal(m.parameters["fc1/weight"].data, values)
    with pytest.raises(M.ModelError, match="seed must be an integer in"):
        m.init(seed=-3)


def test_init_net_gives_constants_and_values() -> None:
    m, x, y = two_layers()
    weight, bias = m.parameters["fc1/weight"], m.parameters["fc1/bias"]
    values = np.arange(12.0).reshape(4, 3)
    m.init_net[weight] = values
    m.init_net[bias] = 0.5
    m.init_net[m.parameters["fc2/weight"]] = {"type": "uniform", "min": 2, "max": 3}
    for again in range(2):
        np.testing.assert_array_equal(weight.data, values)
        assert (bias.data == 0.5).all()
        assert (m.parameters["fc2/weight"].data >= 2).all()
        weight.data[...] = again
        m.init()
    net = caffe.Net(m.to_proto("test"), caffe.TEST)
    np.testing.assert_array_equal(net.params["fc1"][0].data, values)
    with pytest.raises(M.ModelError, match=r"has shape \(4,\), the array \(5,\)"):
        m.init_net[bias] = np.zeros(5)
    del m.init_net[weight]
    m.init()
    np.testing.assert_array_equal(weight.data, two_layers()[0].parameters["fc1/weight"].data)


def test_sharing_a_layers_parameter() -> None:
    m = M.Model(seed=1)
    x, z = m.input((2, 3), name="x"), m.input((2, 3), name="z")
    a = m.fc(x, 4)
    weight, bias = a.layer.parameters
    b = m.fc(z, 4, weight=weight, bias=bias)
    assert [p.name for p in b.layer.parameters] == ["fc1/weight", "fc1/bias"]
    assert list(m.parameters) == ["fc1/weight", "fc1/bias"]
    assert m.param_info(weight).layers == ("fc1", "fc2")
    batch = np.array([[1.0, 2, 3]])
    np.testing.assert_array_equal(*m.run([a, b], {x: batch, z: batch}))
    loss = m.euclidean_loss(a, b)
    m.minimize(loss, "SGD", base_lr=0.1)
    net = m.net("train", [loss], [x, z])
    net.zero_grad()
    net(batch, batch + 1).backward()
    # d/dW |W (x - z)|² / 2 = W d dᵀ
    d = np.full((1, 3), -1.0)
    np.testing.assert_allclose(weight.diff, weight.data @ d.T @ d, rtol=1e-5)
    assert len(net.learnable) == 2


def test_created_parameters() -> None:
    m = M.Model(seed=1)
    x = m.input((2, 3))
    with m.scope("tied"):
        w = m.create_parameter("w", (4, 3), {"type": "gaussian", "std": 0.1}, lr_mult=3, decay_mult=0)
    a, b = m.fc(x, 4, weight=w, bias=False), m.fc(x, 4, weight=w, bias=False)
    offset = m.create_parameter("offset", (2, 4), 7.0)
    y = m.add(a, b, offset)
    info = m.param_info(w)
    assert (info.name, info.lr_mult, info.decay_mult, info.layers) == ("tied/w", 3, 0, ("fc1", "fc2"))
    assert list(m.parameters) == ["tied/w", "offset"]
    out = m.run(y, {x: np.ones((2, 3))})
    np.testing.assert_allclose(out, np.tile(2 * w.data.sum(axis=1) + 7, (2, 1)), rtol=1e-6)
    assert 0 < w.data.std() < 0.3
    m.fc(x, 5, weight=m.create_parameter("v", (4, 3)))
    with pytest.raises(M.ModelError, match=r"fc3.*parameter 0 has shape \(5, 3\), and 'v' .*\(4, 3\)"):
        m.net("test")
    with pytest.raises(M.ModelError, match=r"has a parameter 'offset' already \(made at test_parameters"):
        m.create_parameter("offset", (1,))
    with pytest.raises(M.ModelError, match="takes a parameter of this model"):
        other = M.Model()
        other.fc(other.input((1, 1)), 1, weight=w)


def test_frozen_parameters_stay(rng: np.random.Generator) -> None:
    with M.Model(seed=1) as m:
        x, y = m.data((rng.normal(size=(8, 3)), rng.normal(size=(8, 2))), batch_size=8)
        h = m.fc(x, 4)
        loss = m.euclidean_loss(m.fc(h, 2), y)
    m.minimize(loss, base_lr=0.1)
    frozen, free = m.parameters["fc1/weight"], m.parameters["fc2/weight"]
    frozen.lr_mult = 0
    before = frozen.data.copy(), free.data.copy()
    m.fit(3)
    np.testing.assert_array_equal(frozen.data, before[0])
    assert not np.array_equal(free.data, before[1])
    free.lr_mult, frozen.lr_mult = 0, 1
    for go_on in (lambda: m.fit(1), m.minimizer.step):
        with pytest.raises(M.ModelError, match=r"call m\.minimize\(\.\.\.\) again"):
            go_on()
    m.minimize(loss, base_lr=0.1)
    before = frozen.data.copy(), free.data.copy()
    m.fit(2)
    np.testing.assert_array_equal(free.data, before[1])
    assert not np.array_equal(frozen.data, before[0])


def test_statistics_are_shared_by_train_and_test(rng: np.random.Generator) -> None:
    with M.Model(seed=1) as m:
        x, y = m.data((rng.normal(5, 2, (64, 3)), rng.normal(size=(64, 3))), batch_size=64)
        n = m.batch_norm(x, scale=False, momentum=0.9)
        loss = m.euclidean_loss(m.fc(n, 3), y)
    m.minimize(loss, base_lr=0.01)
    m.fit(5)
    out = m.run(n)
    assert abs(out.mean()) < 0.05 and abs(out.std() - 1) < 0.05
    assert [p.name for p in n.layer.parameters] == ["bn1/mean", "bn1/variance", "bn1/count"]


def test_weights_go_between_models() -> None:
    a, b = two_layers(1)[0], two_layers(2)[0]
    a.save(weights="a.caffemodel")
    b.load("a.caffemodel")
    np.testing.assert_array_equal(a.parameters["fc1/weight"].data, b.parameters["fc1/weight"].data)
