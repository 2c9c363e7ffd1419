"""Net: wiring, who needs a gradient, sharing, partial passes, views, callbacks: per engine."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe.errors import CaffeError, LayerError, NetError, ShapeError, WeightsError
from caffe.proto import caffe_pb2

MLP = """
name: "mlp"
layer { name: "in" type: "Input" top: "x" top: "t"
        input_param { shape { dim: 2 dim: 3 } shape { dim: 2 dim: 2 } } }
layer { name: "ip1" type: "InnerProduct" bottom: "x" top: "ip1"
        inner_product_param { num_output: 4 weight_filler { type: "xavier" } bias_filler { value: 0.1 } } }
layer { name: "relu" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
        inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip2" bottom: "t" top: "loss" }
"""


def net_of(text: str, phase: int = caffe.TRAIN, **kwargs) -> caffe.Net:
    return caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), phase, **kwargs)


def input_layer(*shapes: str, names: str = "x y z") -> str:
    tops = " ".join(f'top: "{n}"' for n, _ in zip(names.split(), shapes, strict=False))
    dims = " ".join("shape { " + " ".join(f"dim: {d}" for d in s.split()) + " }" for s in shapes)
    return f'layer {{ name: "in" type: "Input" {tops} input_param {{ {dims} }} }}\n'


def closed_form(net: caffe.Net, x: np.ndarray, t: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and parameter gradients of MLP in float64."""
    w1, b1, w2, b2 = (p.data.astype(float) for n in ("ip1", "ip2") for p in net.params[n])
    h = x @ w1.T + b1
    a = np.maximum(h, 0)
    y = a @ w2.T + b2
    dy = (y - t) / len(x)
    dh = dy @ w2 * (h > 0)
    return ((y - t) ** 2).sum() / (2 * len(x)), {
        "ip1": [dh.T @ x, dh.sum(0)],
        "ip2": [dy.T @ a, dy.sum(0)],
    }


@pytest.fixture
def batch(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.standard_normal((2, 3)).astype(np.float32), rng.standard_normal((2, 2)).astype(np.float32)


def check(net: caffe.Net, x: np.ndarray, t: np.ndarray) -> None:
    net.clear_param_diffs()
    out = net.forward(x=x, t=t)
    net.backward()
    loss, grads = closed_form(net, x, t)
    assert float(out["loss"]) == pytest.approx(loss, rel=1e-5)
    for name, expected in grads.items():
        for blob, g in zip(net.params[name], expected, strict=True):
            assert np.allclose(blob.diff, g, atol=1e-5)


def test_forward_and_backward_against_closed_form(engine: str, batch) -> None:
    net = net_of(MLP)
    if engine == "fake":
        assert [s.kernel.engine for s in net._steps] == ["reference", "fake", "fake", "fake", "reference"]
    check(net, *batch)


def test_gradients_accumulate_until_cleared(engine: str, batch) -> None:
    net = net_of(MLP)
    check(net, *batch)
    once = net.params["ip1"][0].diff.copy()
    net.forward()
    net.backward()
    assert np.allclose(net.params["ip1"][0].diff, 2 * once, rtol=1e-5)
    check(net, *batch)


# -- views ------------------------------------------------------------------------------------------------


def test_views_held_over_passes_are_read_and_written(engine: str, batch, rng: np.random.Generator) -> None:
    net = net_of(MLP)
    x, t = net.blobs["x"].data, net.blobs["t"].data
    w, gw = net.params["ip1"][0].data, net.params["ip1"][0].diff
    hidden, row = net.blobs["ip1"].data, net.blobs["ip2"].data[1]
    for _ in range(3):
        x[...] = rng.standard_normal(x.shape)
        t[...] = rng.standard_normal(t.shape)
        w[0] += 0.5
        net.clear_param_diffs()
        net.forward()
        net.backward()
        loss, grads = closed_form(net, x, t)
        assert float(net.blobs["loss"].data) == pytest.approx(loss, rel=1e-5)
        assert np.allclose(gw, grads["ip1"][0], atol=1e-5)
        b1 = net.params["ip1"][1].data
        assert np.allclose(hidden, np.maximum(x @ w.T + b1, 0), atol=1e-5)
        assert np.allclose(row, net.blobs["ip2"].data[1])


def test_views_over_reshape(engine: str, batch, rng: np.random.Generator) -> None:
    net = net_of(MLP)
    check(net, *batch)
    old = net.blobs["x"].data
    for n in (5, 1, 4):
        x, t = rng.standard_normal((n, 3)), rng.standard_normal((n, 2))
        net.blobs["x"].reshape(n, 3)
        net.blobs["t"].reshape(n, 2)
        net.reshape()
        assert net.blobs["ip2"].data.shape == (n, 2)
        check(net, x, t)
    assert old.shape == (2, 3)


def test_forward_notices_a_reshaped_input(engine: str, rng: np.random.Generator) -> None:
    net = net_of(MLP)
    net.blobs["x"].reshape(7, 3)
    net.blobs["t"].reshape(7, 2)
    check(net, rng.standard_normal((7, 3)), rng.standard_normal((7, 2)))


def test_memory_of_a_dead_net_is_freed() -> None:
    net = net_of(MLP)
    net.forward()
    view = net.blobs["ip1"].data
    del net
    gc.collect()
    view[...] = 3
    assert view.sum() == 3 * view.size


# -- aliasing ---------------------------------------------------------------------------------------------


def test_nets_that_share_parameters_see_each_others_changes(engine: str, batch) -> None:
    train, test = net_of(MLP), net_of(MLP, caffe.TEST)
    test.share_with(train)
    check(train, *batch)
    view = test.params["ip1"][0].data
    train.params["ip1"][0].data[...] *= 2
    assert np.array_equal(view, train.params["ip1"][0].data)
    check(test, *batch)
    test.params["ip2"][1].data[...] = 7
    check(train, *batch)


def test_sharing_needs_equal_shapes() -> None:
    other = net_of(MLP.replace("num_output: 4", "num_output: 5"))
    with pytest.raises(WeightsError, match="Cannot share param 0 weights from layer 'ip1'; shape mismatch"):
        net_of(MLP).share_with(other)


SHARED = (
    input_layer("2 3")
    + """
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" lr_mult: 2 } param { name: "b" }
        inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "b" type: "InnerProduct" bottom: "a" top: "b"
        param { name: "w" } param { name: "b" decay_mult: 0 }
        inner_product_param { num_output: 3 } }
layer { name: "loss" type: "Reduction" bottom: "b" top: "loss" loss_weight: 1 }
"""
)


def test_parameters_shared_by_name(engine: str, rng: np.random.Generator) -> None:
    net = net_of(SHARED.replace('type: "Reduction"', 'type: "EuclideanLoss" bottom: "x"'))
    x = rng.standard_normal((2, 3))
    net.forward(x=x)
    net.backward()
    w, b = (p.data.astype(float) for p in net.params["a"])
    a = x @ w.T + b
    d2 = (a @ w.T + b - x) / 2
    d1 = d2 @ w
    assert np.allclose(net.params["a"][0].diff, d2.T @ a + d1.T @ x, atol=1e-4)
    assert np.array_equal(net.params["a"][0].diff, net.params["b"][0].diff)
    assert [p.name for p in net.learnable] == ["w", "b"]
    assert [(p.lr_mult, p.decay_mult) for p in net.learnable] == [(2, 1), (1, 0)]
    assert [net._layer_names[i] for i in net.learnable[0].users] == ["a", "b"]


@pytest.mark.parametrize(
    "old, new, words",
    [
        (
            'param { name: "w" }',
            'param { name: "w" lr_mult: 3 }',
            "Shared param 'w' has mismatched lr_mult: 2 against 3",
        ),
        (
            "num_output: 3 } }",
            "num_output: 2 } }",
            "Cannot share param 'w' owned by layer 'a' with layer 'b'; shape mismatch",
        ),
    ],
)
def test_sharing_by_name_is_refused(old: str, new: str, words: str) -> None:
    with pytest.raises(CaffeError, match=words):
        net_of(
            SHARED.replace(old, new)
            .replace('type: "Reduction"', 'type: "Silence"')
            .replace('top: "loss" loss_weight: 1', "")
        )


# -- who needs a gradient ---------------------------------------------------------------------------------


def flags(net: caffe.Net) -> dict[str, tuple[bool, list[bool]]]:
    w = net._wiring
    return {n: (w.layer_need_backward[i], w.bottom_need_backward[i]) for i, n in enumerate(w.layer_names)}


def test_inputs_get_no_gradient_unless_forced() -> None:
    assert flags(net_of(MLP))["ip1"] == (True, [False])
    forced = flags(net_of(MLP + "force_backward: true"))
    assert forced["ip1"] == (True, [True]) and forced["loss"] == (True, [True, True])


def test_frozen_layers_cost_no_backward() -> None:
    frozen = MLP.replace(
        'bottom: "x" top: "ip1"', 'bottom: "x" top: "ip1" param { lr_mult: 0 } param { lr_mult: 0 }'
    )
    assert flags(net_of(frozen))["ip1"] == (False, [False])
    assert flags(net_of(frozen))["ip2"] == (True, [False])


def test_propagate_down_stops_the_gradient() -> None:
    stopped = MLP.replace('bottom: "ip1" top: "ip2"', 'bottom: "ip1" top: "ip2" propagate_down: false')
    got = flags(net_of(stopped))
    assert got["ip2"] == (True, [False]) and not got["relu"][0] and not got["ip1"][0]
    with pytest.raises(NetError, match="propagate_down param must be specified"):
        net_of(
            MLP.replace(
                'bottom: "x" top: "ip1"', 'bottom: "x" top: "ip1" propagate_down: true propagate_down: true'
            )
        )


def test_branches_off_the_loss_need_none() -> None:
    net = net_of(
        MLP + 'layer { name: "side" type: "InnerProduct" bottom: "ip2" top: "side" '
        "inner_product_param { num_output: 1 } }"
    )
    got = flags(net)
    assert not got["side"][0] and got["ip2"][0]
    assert net.outputs == ["loss", "side"]


def test_loss_weights() -> None:
    net = net_of(MLP.replace('top: "loss" }', 'top: "loss" loss_weight: 3 }'))
    net.blobs["t"].data[...] = 1
    total = net.run_forward()
    assert total == pytest.approx(3 * float(net.blobs["loss"].data))
    assert dict(net.blob_loss_weights)["loss"] == 3
    anywhere = net_of(
        input_layer("2 3") + 'layer { name: "p" type: "Power" bottom: "x" top: "p" loss_weight: 0.5 }'
    )
    anywhere.blobs["x"].data[...] = 2
    assert anywhere.run_forward() == pytest.approx(0.5 * 12)
    with pytest.raises(LayerError, match="loss_weight must be unspecified or specified once per top blob"):
        net_of(
            input_layer("2 3")
            + 'layer { name: "p" type: "Power" bottom: "x" top: "p" loss_weight: 1 loss_weight: 1 }'
        )


# -- names, wiring, errors --------------------------------------------------------------------------------


def test_names_as_the_original_has_them() -> None:
    net = net_of(MLP)
    assert net._layer_names == ["in", "ip1", "relu", "ip2", "loss"]
    assert list(net.blobs) == net._blob_names == ["x", "t", "ip1", "ip2", "loss"]
    assert list(net.params) == ["ip1", "ip2"] and [len(v) for v in net.params.values()] == [2, 2]
    assert (net.inputs, net.outputs) == (["x", "t"], ["loss"])
    assert net.top_names["relu"] == ["ip1"] and net.bottom_names["loss"] == ["ip2", "t"]
    assert net._bottom_ids(4) == [3, 1] and net._top_ids(0) == [0, 1]
    assert net.layer_dict["ip2"].type == "InnerProduct" and net.layers[2] is net.layer_dict["relu"]
    assert net.memory_used == 4 * (6 + 4 + 8 + 8 + 4 + 1)


def test_implicit_splits() -> None:
    net = net_of(
        input_layer("2 3")
        + "".join(f'layer {{ name: "p{i}" type: "Power" bottom: "x" top: "p{i}" }}\n' for i in range(2))
    )
    assert net._layer_names == ["in", "x_in_0_split", "p0", "p1"]
    assert list(net.blobs) == ["x", "x_in_0_split_0", "x_in_0_split_1", "p0", "p1"]


@pytest.mark.parametrize(
    "text, kind, words",
    [
        (
            'layer { name: "p" type: "Power" bottom: "y" top: "p" }',
            NetError,
            "Unknown bottom blob 'y' .layer 'p', bottom index 0",
        ),
        (
            'layer { name: "p" type: "Power" bottom: "x" top: "q" } '
            'layer { name: "p2" type: "Power" bottom: "q" top: "x" }',
            NetError,
            "Top blob 'x' produced by multiple sources",
        ),
        (
            'layer { name: "p" type: "Powr" bottom: "x" top: "q" }',
            LayerError,
            "layer 'p' .Powr.: Unknown layer type: Powr; did you mean 'Power'",
        ),
        ('layer { name: "p" type: "Power" bottom: "x" }', LayerError, "takes exactly|takes 1|at least"),
        (
            'layer { name: "p" type: "Power" bottom: "x" top: "p" param { lr_mult: 1 } }',
            LayerError,
            "Too many params specified for layer p",
        ),
    ],
)
def test_wiring_errors(text: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        net_of(input_layer("2 3") + text)


def test_layer_errors_tell_file_and_line(tmp_path: Path) -> None:
    Path("bad.prototxt").write_text(
        input_layer("1 1 4 4") + '\n\nlayer {\n name: "c" type: "Convolution" bottom: "x" top: "c"\n}\n'
    )
    with pytest.raises(LayerError, match=r"layer 'c' \(Convolution, bad.prototxt:4\)"):
        caffe.Net("bad.prototxt", caffe.TEST)


def test_constructor_forms(tmp_path: Path) -> None:
    Path("n.prototxt").write_text(MLP)
    a = caffe.Net("n.prototxt", caffe.TRAIN)
    a.save("w.caffemodel")
    nets = [
        caffe.Net("n.prototxt", "w.caffemodel", caffe.TEST),
        caffe.Net("n.prototxt", caffe.TEST, weights="w.caffemodel"),
        caffe.Net(network_file="n.prototxt", phase=caffe.TEST, weights="w.caffemodel"),
        caffe.Net("n.prototxt", 1, 0, [], "w.caffemodel"),
    ]
    for net in nets:
        assert net.phase == caffe.TEST
        assert all(
            np.array_equal(p.data, q.data)
            for n in a.params
            for p, q in zip(a.params[n], net.params[n], strict=True)
        )
    with pytest.raises(TypeError, match="phase"):
        caffe.Net("n.prototxt")
    with pytest.raises(NetError, match="phase must be"):
        caffe.Net("n.prototxt", 7)
    for phase in (True, 1.0, np.int64(1)):
        assert caffe.Net("n.prototxt", phase).phase == caffe.TEST
    assert caffe.Net("n.prototxt", Path("w.caffemodel"), caffe.TEST).phase == caffe.TEST


def test_wrong_arguments_of_a_net(tmp_path: Path) -> None:
    """None of them is passed over."""
    Path("n.prototxt").write_text(MLP)
    for args, named, words in (
        (("w.caffemodel", caffe.TEST), {"weights": "v.caffemodel"}, "weights is given twice"),
        ((caffe.TEST,), {"phase": caffe.TRAIN}, "phase is given twice"),
        ((caffe.TEST, 0, None, None, 5), {}, "takes no 1 arguments more"),
        (("w.caffemodel",), {}, "give caffe.TRAIN or caffe.TEST as the phase"),
    ):
        with pytest.raises(TypeError, match=words):
            caffe.Net("n.prototxt", *args, **named)
    with pytest.raises(NetError, match=r"stages must be names, such as \['deploy'\]"):
        caffe.Net("n.prototxt", caffe.TEST, stages="deploy")
    with pytest.raises(NetError, match="level must be a whole number, not '2'"):
        caffe.Net("n.prototxt", caffe.TEST, level="2")


def test_level_and_stage_choose_layers() -> None:
    text = (
        input_layer("2 3")
        + """
    layer { name: "a" type: "Power" bottom: "x" top: "a" include { stage: "s" min_level: 2 } }
    """
    )
    assert "a" not in net_of(text, level=2).layer_dict
    assert "a" not in net_of(text, stages=["s"]).layer_dict
    assert "a" in net_of(text, level=2, stages=["s", "other"]).layer_dict


# -- partial passes, feeding, callbacks ---------------------------------------------------------------------


def test_start_and_end(engine: str, batch) -> None:
    net = net_of(MLP)
    x, t = batch
    assert sorted(net.forward(x=x, t=t, end="relu")) == ["ip1"]
    net.blobs["ip1"].data[...] = 1
    out = net.forward(start="ip2", blobs=["ip2"])
    assert sorted(out) == ["ip2", "loss"]
    w, b = (p.data for p in net.params["ip2"])
    assert np.allclose(out["ip2"], np.ones((2, 4)) @ w.T + b, atol=1e-6)
    net.backward(start="loss", end="ip2")
    assert not net.params["ip1"][0].diff.any() and net.params["ip2"][0].diff.any()


def test_feeding_wrong_things() -> None:
    net = net_of(MLP)
    with pytest.raises(NetError, match="Input blob arguments do not match net inputs.*the net has: x, t"):
        net.forward(y=np.zeros(1))
    with pytest.raises(NetError, match="Input is not batch sized: 'x' has shape"):
        net.forward(x=np.zeros((3, 3)), t=np.zeros((2, 2)))
    with pytest.raises(NetError, match="does not fit"):
        net.forward(x=np.zeros((2, 4)), t=np.zeros((2, 2)))
    for what in ("a", object()):
        with pytest.raises(NetError, match="or its values do not .object."):
            net.forward(x=np.full((2, 3), what, object), t=np.zeros((2, 2)))
    with pytest.raises(NetError, match="Unknown blob 'ip3'; did you mean"):
        net.forward(["ip3"])
    with pytest.raises(NetError, match="Unknown layer 'ipp'"):
        net.forward(start="ipp")
    with pytest.raises(NetError, match="Top diff arguments do not match"):
        net.backward(x=np.zeros((2, 3)))


def test_callbacks_see_and_change_blobs_between_layers(engine: str, batch) -> None:
    net = net_of(MLP)
    seen: list[tuple[str, int]] = []
    kept = net.blobs["ip1"].data

    def clamp(index: int) -> None:
        if index == 2:
            kept[...] = 1

    net.after_forward(clamp)
    for hook in ("before_forward", "after_forward", "before_backward", "after_backward"):
        getattr(net, hook)(lambda i, hook=hook: seen.append((hook, i)))
    x, t = batch
    out = net.forward(["ip2"], x=x, t=t)
    w, b = (p.data for p in net.params["ip2"])
    assert np.allclose(out["ip2"], np.ones((2, 4)) @ w.T + b, atol=1e-6)
    net.backward()
    assert seen[:4] == [
        ("before_forward", 0),
        ("after_forward", 0),
        ("before_forward", 1),
        ("after_forward", 1),
    ]
    assert seen[-2:] == [("before_backward", 0), ("after_backward", 0)] and len(seen) == 20


def test_gradients_are_announced_in_backward_order_once_complete() -> None:
    net = net_of(SHARED.replace('type: "Reduction"', 'type: "EuclideanLoss" bottom: "x"'))
    net.blobs["x"].data[...] = 1
    order = []
    net.run_forward()
    net.run_backward(on_param_ready=lambda p: order.append((p.name, p.blob.diff.any())))
    assert sorted(order) == [("b", True), ("w", True)] and len(order) == 2
    mlp = net_of(MLP)
    mlp.blobs["x"].data[...] = 1
    layers = []
    mlp.run_forward()
    mlp.run_backward(on_param_ready=lambda p: layers.append(p.layer_index))
    assert layers == [3, 3, 1, 1]


# -- weights -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "save, load, file",
    [
        ("save", "copy_from", "w.caffemodel"),
        ("save_hdf5", "load_hdf5", "w.h5"),
        ("save_hdf5", "copy_from", "w.h5"),
    ],
)
def test_weights_round_trip(engine: str, save: str, load: str, file: str, batch) -> None:
    a, b = net_of(MLP), net_of(MLP)
    check(a, *batch)
    check(b, *batch)
    view = b.params["ip1"][0].data
    getattr(a, save)(file)
    getattr(b, load)(file)
    for name in a.params:
        for p, q in zip(a.params[name], b.params[name], strict=True):
            assert np.array_equal(p.data, q.data)
    assert np.array_equal(view, a.params["ip1"][0].data)
    check(b, *batch)
    assert [x.name for x in Path(".").iterdir()] == [file]


def test_to_proto_holds_the_weights() -> None:
    a, b = net_of(MLP), net_of(MLP)
    b.copy_from(a.to_proto())
    assert np.array_equal(a.params["ip2"][0].data, b.params["ip2"][0].data)


def test_weights_that_do_not_fit_change_nothing() -> None:
    other = net_of(MLP.replace("num_output: 2", "num_output: 3").replace("dim: 2 dim: 2", "dim: 2 dim: 3"))
    other.save("w.caffemodel")
    net = net_of(MLP)
    before = net.params["ip1"][0].data.copy()
    words = (
        r"Cannot copy param 0 weights from layer 'ip2'; shape mismatch.  Source param shape is 3 4 \(12\); "
        r"target param shape is 2 4 \(8\). To learn this layer's parameters from scratch rather than copying "
        r"from a saved net, rename the layer."
    )
    with pytest.raises(WeightsError, match=words):
        net.copy_from("w.caffemodel")
    assert np.array_equal(net.params["ip1"][0].data, before)
    with pytest.raises(WeightsError, match="Couldn't open none.caffemodel"):
        net.copy_from("none.caffemodel")


def test_copying_goes_by_name() -> None:
    a = net_of(MLP)
    a.save("w.caffemodel")
    b = net_of(MLP.replace('name: "ip2"', 'name: "fresh"'))
    kept = b.params["fresh"][0].data.copy()
    b.copy_from("w.caffemodel")
    assert np.array_equal(a.params["ip1"][0].data, b.params["ip1"][0].data)
    assert np.array_equal(b.params["fresh"][0].data, kept)


def test_shape_errors_inside_a_layer_name_it() -> None:
    net = net_of(MLP)
    net.blobs["x"].reshape(2, 5)
    with pytest.raises(ShapeError, match="layer 'ip1'") as caught:
        net.reshape()
    assert isinstance(caught.value, LayerError)


def test_a_dropped_net_is_freed_at_once() -> None:
    gc.collect()
    gc.disable()
    try:
        net = net_of(MLP)
        net.forward()
        net.backward()
        weight, layer = weakref.ref(net.params["ip1"][0]), weakref.ref(net.layers[0])
        del net
        assert weight() is None and layer() is None
    finally:
        gc.enable()


def test_parameters_learn_in_test_phase_too(engine: str) -> None:
    """A scale in place keeps what its gradient needs, whatever the phase."""
    net = net_of(
        input_layer("2 3 2 2", "2 3 2 2", names="x t")
        + """
        layer { name: "ip" type: "Convolution" bottom: "x" top: "c"
                convolution_param { num_output: 3 kernel_size: 1 weight_filler { type: "xavier" } } }
        layer { name: "s" type: "Scale" bottom: "c" top: "c" scale_param { bias_term: true } }
        layer { name: "loss" type: "EuclideanLoss" bottom: "c" bottom: "t" top: "loss" }
        """,
        caffe.TEST,
    )
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 2, 2)
    net.params["s"][0].data[...] = [0.1, 0.2, -0.3]
    net.blobs["x"].data[...] = x
    net.forward()
    net.backward()
    w, b = (p.data.astype(float) for p in net.params["ip"])
    before = np.einsum("oi,nihw->nohw", w[:, :, 0, 0], x) + b[:, None, None]
    dy = before * np.array([0.1, 0.2, -0.3])[:, None, None] / 2
    assert np.allclose(net.params["s"][0].diff, (dy * before).sum((0, 2, 3)), atol=1e-5)
    assert np.allclose(net.params["s"][1].diff, dy.sum((0, 2, 3)), atol=1e-5)
