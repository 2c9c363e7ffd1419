"""Convolutions of 3 x 3 through Winograd's transforms, against sums in float64."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from google.protobuf import text_format
from numpy.lib.stride_tricks import sliding_window_view

import caffe
from caffe import kernels
from caffe.blob import Blob
from caffe.engines.onednn import base, winograd, winograd_primitives
from caffe.engines.onednn.layouts import plain
from caffe.engines.onednn.place import Operand
from caffe.engines.onednn.primitives import PrimitiveDesc
from caffe.engines.onednn.winograd import IN, OUT, Tiling, feature_pieces, image_pieces, matrices
from caffe.engines.onednn.winograd_primitives import version_of
from caffe.proto import caffe_pb2

# Of the largest number: five times what a direct sum in float32 loses.
CLOSE = 5e-6


@pytest.fixture(autouse=True)
def _onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernels.engine_ready("onednn"):
        pytest.skip(kernels.engine_reason("onednn"))
    monkeypatch.setenv("CAFFE_ENGINE", "onednn")


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small convolutions, too, are done this way."""
    monkeypatch.setattr(Tiling, "pays", lambda self, trains: True)
    yield


def net_of(text: str, phase: int = caffe.TRAIN) -> caffe.Net:
    caffe.set_random_seed(5)
    return caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), phase)


def input_layer(shape: tuple[int, ...], name: str = "x") -> str:
    dims = " ".join(f"dim: {d}" for d in shape)
    return f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}'


def convolution(
    outputs: int, kernel: int = 3, name: str = "y", bottom: str = "lead", more: str = "", rates: str = ""
) -> str:
    return (
        f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" {rates} '
        f"convolution_param {{ num_output: {outputs} kernel_size: {kernel} {more} weight_filler "
        '{ type: "msra" } bias_filler { type: "gaussian" } } }'
    )


def conv_net(shape: tuple[int, ...], outputs: int, more: str = "", after: str = "") -> str:
    """x, as it is, in blocks; then a convolution of 3 x 3."""
    lead = (
        f'layer {{ name: "lead" type: "Convolution" bottom: "x" top: "lead" convolution_param {{ '
        f"num_output: {shape[1]} kernel_size: 1 bias_term: false }} }}"
    )
    return f"force_backward: true {input_layer(shape)} {lead} {convolution(outputs, more=more)} {after}"


def pass_through(net: caffe.Net) -> None:
    weights = net.params["lead"][0].data
    weights[...] = np.eye(weights.shape[0]).reshape(weights.shape)


def used(net: caffe.Net, name: str = "y") -> bool:
    step = next(s for s in net._steps if s.layer.name == name)
    return getattr(step.kernel, "tiling", None) is not None


def numbers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def correlate(x: np.ndarray, w: np.ndarray, pad: tuple[int, int], group: int) -> np.ndarray:
    """In float64, (N, K, H', W')."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad[0],) * 2, (pad[1],) * 2))
    windows = sliding_window_view(x, (3, 3), axis=(2, 3))
    parts = zip(np.split(windows, group, axis=1), np.split(w.astype(np.float64), group), strict=True)
    return np.concatenate([np.einsum("nchwij,kcij->nkhw", v, u) for v, u in parts], axis=1)


def gradients(
    x: np.ndarray, w: np.ndarray, dy: np.ndarray, pad: tuple[int, int], group: int
) -> tuple[np.ndarray, np.ndarray]:
    """Of weights and image, in float64."""
    h, v = pad
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (h, h), (v, v)))
    windows = sliding_window_view(padded, (3, 3), axis=(2, 3))
    dys = np.split(dy.astype(np.float64), group, axis=1)
    dw = [np.einsum("nchwij,nkhw->kcij", a, b) for a, b in zip(np.split(windows, group, 1), dys, strict=True)]
    dx = np.zeros_like(padded)
    for g, (weights, d) in enumerate(zip(np.split(w.astype(np.float64), group), dys, strict=True)):
        channels = slice(g * weights.shape[1], (g + 1) * weights.shape[1])
        for i, j in itertools.product(range(3), range(3)):
            part = np.einsum("kc,nkhw->nchw", weights[:, :, i, j], d)
            dx[:, channels, i : i + d.shape[2], j : j + d.shape[3]] += part
    return np.concatenate(dw), dx[:, :, h : dx.shape[2] - h, v : dx.shape[3] - v]


def assert_close(found: np.ndarray, wanted: np.ndarray, tolerance: float = CLOSE) -> None:
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= tolerance * np.abs(wanted).max()


@pytest.mark.parametrize("pad", [0, 1, 2])
def test_pieces_cover_the_axis(pad: int) -> None:
    for size in range(1, 42):
        features = size + 2 * pad - 2
        if features < 1:
            continue
        tiles = -(-features // OUT)
        seen, own = [], []
        for piece in image_pieces(size, pad, tiles):
            for tile in range(piece.tile, piece.tile + piece.tiles):
                taps = range(piece.tap, piece.tap + piece.taps)
                seen += [(tile, tap) for tap in taps]
                own += [OUT * tile + tap - pad for tap in taps] if piece.own else []
        inside = [(t, k) for t in range(tiles) for k in range(IN) if 0 <= OUT * t + k - pad < size]
        assert sorted(seen) == inside
        assert sorted(own) == list(range(size))
        made = [
            OUT * tile + place
            for piece in feature_pieces(features)
            for tile in range(piece.tile, piece.tile + piece.tiles)
            for place in range(piece.tap, piece.tap + piece.taps)
        ]
        assert sorted(made) == list(range(features))


def test_matrices_give_a_convolution() -> None:
    image, weights, features = (matrix.astype(np.float64) for matrix in matrices())
    d, g = np.random.default_rng(1).standard_normal((2, 6, 6))
    y = features @ ((weights @ g[:3, :3].reshape(-1)) * (image @ d.reshape(-1)))
    wanted = [[(d[i : i + 3, j : j + 3] * g[:3, :3]).sum() for j in range(4)] for i in range(4)]
    np.testing.assert_allclose(y.reshape(4, 4), wanted, rtol=0, atol=1e-5)


CASES = [
    ((2, 16, 8, 8), 16, (1, 1), 1),
    ((3, 32, 13, 17), 48, (1, 1), 1),
    ((2, 16, 7, 6), 32, (0, 2), 1),
    ((2, 16, 9, 10), 16, (2, 0), 1),
    ((1, 16, 3, 3), 16, (0, 0), 1),
    ((5, 16, 1, 1), 16, (1, 1), 1),
    ((2, 64, 14, 11), 96, (1, 1), 2),
    ((40, 96, 12, 12), 96, (1, 1), 3),  # several parts, the last of fewer images
]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("phase", [caffe.TRAIN, caffe.TEST])
@pytest.mark.parametrize(("shape", "outputs", "pad", "group"), CASES)
def test_passes(shape: tuple, outputs: int, pad: tuple[int, int], group: int, phase: int) -> None:
    net = net_of(conv_net(shape, outputs, f"pad_h: {pad[0]} pad_w: {pad[1]} group: {group}"), phase)
    pass_through(net)
    assert used(net)
    w, b = (blob.data.copy() for blob in net.params["y"])
    for seed in range(2):
        x = numbers(shape, seed)
        net.blobs["x"].data[...] = x
        net.forward()
        wanted = correlate(x, w, pad, group) + b.reshape(1, -1, 1, 1)
        assert_close(net.blobs["y"].data, wanted)
        dy = numbers(wanted.shape, seed + 10)
        net.blobs["y"].diff[...] = dy
        net.clear_param_diffs()
        net.backward()
        net.blobs["y"].diff[...] = dy
        net.backward()  # gradients of parameters add up
        dw, dx = gradients(x, w, dy, pad, group)
        assert_close(net.params["y"][0].diff, 2 * dw)
        assert_close(net.params["y"][1].diff, 2 * dy.astype(np.float64).sum(axis=(0, 2, 3)))
        assert_close(net.blobs["lead"].diff, dx)


@pytest.mark.usefixtures("always")
def test_without_a_bias_and_with_relu() -> None:
    relu = 'layer { name: "r" type: "ReLU" bottom: "y" top: "y" relu_param { negative_slope: 0.25 } }'
    for phase, after in itertools.product((caffe.TRAIN, caffe.TEST), ("", relu)):
        net = net_of(conv_net((2, 16, 9, 9), 32, "pad: 1 bias_term: false", after), phase)
        pass_through(net)
        x = numbers((2, 16, 9, 9))
        net.blobs["x"].data[...] = x
        net.forward()
        wanted = correlate(x, net.params["y"][0].data, (1, 1), 1)
        assert_close(net.blobs["y"].data, np.where(wanted < 0, wanted / 4, wanted) if after else wanted)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("phase", [caffe.TRAIN, caffe.TEST])
def test_weights_that_a_user_changes_are_seen(phase: int) -> None:
    net = net_of(conv_net((1, 16, 8, 8), 16, "pad: 1"), phase)
    pass_through(net)
    x = numbers((1, 16, 8, 8))
    net.blobs["x"].data[...] = x
    weights, bias = (blob.data for blob in net.params["y"])  # held all the time
    for seed in range(12):  # more passes than are needed to repeat them
        if seed % 3 == 0:
            weights[...] = numbers(weights.shape, seed)
        if seed % 4 == 0:
            bias[...] = numbers(bias.shape, seed)
        net.forward()
        assert_close(net.blobs["y"].data, correlate(x, weights, (1, 1), 1) + bias.reshape(1, -1, 1, 1))
    held = weights.copy()
    del weights, bias
    for seed in range(12):
        x = numbers(x.shape, seed)
        net.blobs["x"].data[...] = x
        if seed % 5 == 0:
            net.params["y"][0].data[...] = held * (seed + 1)
        net.forward()
        w, b = (blob.data for blob in net.params["y"])
        assert_close(net.blobs["y"].data, correlate(x, w, (1, 1), 1) + b.reshape(1, -1, 1, 1))


@pytest.mark.usefixtures("always")
def test_folded_with_normalisation_and_a_sum() -> None:
    shape = (2, 16, 9, 12)
    after = """
        layer { name: "bn" type: "BatchNorm" bottom: "y" top: "y" }
        layer { name: "sc" type: "Scale" bottom: "y" top: "y" scale_param { bias_term: true } }
        layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "y" top: "sum" }
        layer { name: "r" type: "ReLU" bottom: "sum" top: "sum" }"""
    net = net_of(conv_net(shape, 16, "pad: 1", after), caffe.TEST)
    pass_through(net)
    rng = np.random.default_rng(3)
    for _ in range(3):
        mean, variance = rng.standard_normal(16), rng.uniform(0.5, 2, 16)
        scale, shift = rng.standard_normal((2, 16))
        for blob, values in zip(
            [*net.params["bn"], *net.params["sc"]], [mean, variance, 1, scale, shift], strict=True
        ):
            blob.data[...] = values
        for _ in range(3):
            x = rng.standard_normal(shape).astype(np.float32)
            net.blobs["x"].data[...] = x
            net.forward()
            w, b = (blob.data for blob in net.params["y"])
            y = correlate(x, w, (1, 1), 1) + b.reshape(1, -1, 1, 1)
            column = [v.reshape(1, -1, 1, 1) for v in (mean, variance, scale, shift)]
            y = (y - column[0]) / np.sqrt(column[1] + 1e-5) * column[2] + column[3]
            assert_close(net.blobs["sum"].data, np.maximum(x + y, 0), 2 * CLOSE)
            assert_close(net.blobs["y"].data, y, 2 * CLOSE)


@pytest.mark.usefixtures("always")
def test_several_bottoms_share_the_weights() -> None:
    shapes = [(2, 16, 8, 8), (2, 16, 8, 8)]
    leads = "".join(
        input_layer(s, f"x{i}")
        + f'layer {{ name: "lead{i}" type: "Convolution" bottom: "x{i}" top: "lead{i}" '
        "param { lr_mult: 0 } convolution_param { num_output: 16 kernel_size: 1 bias_term: false "
        'weight_filler { type: "msra" } } }'
        for i, s in enumerate(shapes)
    )
    net = net_of(
        "force_backward: true "
        + leads
        + 'layer { name: "y" type: "Convolution" bottom: "lead0" bottom: "lead1" top: "y0" top: "y1" '
        'convolution_param { num_output: 32 kernel_size: 3 pad: 1 weight_filler { type: "msra" } } }'
    )
    assert used(net)
    for i in range(2):
        net.blobs[f"x{i}"].data[...] = numbers(shapes[i], i)
    net.forward()
    w = net.params["y"][0].data
    total = np.zeros(w.shape)
    for i in range(2):
        dy = numbers((2, 32, 8, 8), 20 + i)
        net.blobs[f"y{i}"].diff[...] = dy
        total = total + gradients(net.blobs[f"lead{i}"].data, w, dy, (1, 1), 1)[0]
        assert_close(net.blobs[f"y{i}"].data, correlate(net.blobs[f"lead{i}"].data, w, (1, 1), 1))
    net.clear_param_diffs()
    net.backward()
    assert_close(net.params["y"][0].diff, total)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("rates", [(0, 1), (1, 0), (0, 0)])
def test_frozen_parameters_get_no_gradient(rates: tuple[int, int]) -> None:
    text = "".join(f"param {{ lr_mult: {rate} }} " for rate in rates)
    net = net_of(
        f"{input_layer((2, 16, 8, 8))} {input_layer((2, 16, 8, 8), 'z')}"
        + convolution(16, 1, "lead", "x")
        + convolution(16, 3, "y", "lead", "pad: 1", text)
        + 'layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "z" top: "loss" }'
    )
    assert used(net)
    net.blobs["x"].data[...] = numbers((2, 16, 8, 8))
    net.forward()
    net.clear_param_diffs()
    net.backward()
    for blob, rate in zip(net.params["y"], rates, strict=True):
        assert bool(np.any(blob.diff)) == bool(rate)
    w = net.params["y"][0].data
    _, dx = gradients(net.blobs["lead"].data, w, net.blobs["y"].diff, (1, 1), 1)
    assert_close(net.params["lead"][0].diff[:, :, 0, 0], np.einsum("nkhw,nchw->kc", dx, net.blobs["x"].data))


def trained(text: str, engine: str, monkeypatch: pytest.MonkeyPatch, steps: int = 6) -> list[np.ndarray]:
    monkeypatch.setenv("CAFFE_ENGINE", engine)
    caffe.set_random_seed(5)
    recipe = caffe_pb2.SolverParameter(
        base_lr=1e-3, lr_policy="fixed", momentum=0.9, weight_decay=1e-3, snapshot_after_train=False
    )
    text_format.Parse(text, recipe.net_param)
    solver = caffe.get_solver(recipe)
    for seed in range(steps):
        solver.net.blobs["x"].data[...] = numbers(solver.net.blobs["x"].shape, seed)
        solver.step(1)
    return [blob.data.copy() for blobs in solver.net.params.values() for blob in blobs]


def deep(shape: tuple[int, ...]) -> str:
    """The second convolution needs more scratch memory than the first, the third less."""
    return (
        input_layer(shape)
        + input_layer((shape[0], 16, *shape[2:]), "z")
        + convolution(16, 1, "lead", "x")
        + convolution(32, 3, "a", "lead", "pad: 1")
        + convolution(64, 3, "b", "a", "pad: 1")
        + convolution(16, 3, "c", "b", "pad: 1")
        + 'layer { name: "loss" type: "EuclideanLoss" bottom: "c" bottom: "z" top: "loss" '
        "loss_weight: 0.001 }"
    )


@pytest.mark.usefixtures("always")
def test_training_follows_the_reference_and_repeats_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    text = deep((2, 16, 9, 10))
    ours, again = (trained(text, "onednn", monkeypatch) for _ in range(2))
    wanted = trained(text, kernels.REFERENCE, monkeypatch)
    for a, b, c in zip(ours, again, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
        assert_close(a, c, 1e-4)


@pytest.mark.usefixtures("always")
def test_another_shape_and_back() -> None:
    net = net_of(deep((2, 16, 9, 10)), caffe.TEST)
    for size in ((2, 9, 10), (3, 5, 14), (2, 9, 10)):
        shape = (size[0], 16, *size[1:])
        net.blobs["x"].reshape(*shape)
        net.blobs["z"].reshape(*shape)
        x = numbers(shape)
        net.blobs["x"].data[...] = x
        net.forward()
        y = net.blobs["lead"].data.astype(np.float64)
        for name in "abc":
            w, b = (blob.data for blob in net.params[name])
            y = correlate(y, w, (1, 1), 1) + b.reshape(1, -1, 1, 1)
        assert_close(net.blobs["c"].data, y)


def scratch_bytes(net: caffe.Net) -> dict[str, int]:
    return {slot: pad._buffer.bytes.size for slot, pad in base._scratchpads[net.run].items()}


@pytest.mark.usefixtures("always")
def test_shapes_of_before_leave_no_scratch_memory() -> None:
    net, fresh = (net_of(deep((2, 16, height, 10))) for height in (9, 25))
    for height in (9, 13, 17, 21, 25):
        for name in "xz":
            net.blobs[name].reshape(2, 16, height, 10)
        net.forward()
        net.backward()
    gc.collect()
    fresh.forward()
    fresh.backward()
    assert scratch_bytes(net) == scratch_bytes(fresh)


@pytest.mark.usefixtures("always")
def test_a_number_that_is_none_stays_in_its_tile() -> None:
    net = net_of(conv_net((2, 16, 12, 12), 16, "pad: 1"))
    pass_through(net)
    x = numbers((2, 16, 12, 12))
    net.blobs["x"].data[...] = x
    net.blobs["x"].data[1, 3, 11, 11] = np.nan
    net.forward()
    assert np.isnan(net.blobs["y"].data[1, :, 10:, 10:]).all()
    assert not np.isnan(net.blobs["y"].data[0]).any()
    net.blobs["x"].data[...] = x
    net.forward()  # nothing of it is left in the scratch memory
    w, b = (blob.data for blob in net.params["y"])
    assert_close(net.blobs["y"].data, correlate(x, w, (1, 1), 1) + b.reshape(1, -1, 1, 1))


def test_it_is_chosen_where_it_is_less_work() -> None:
    deep_layer = net_of(conv_net((2, 128, 28, 28), 128, "pad: 1"), caffe.TEST)
    assert used(deep_layer)
    pass_through(deep_layer)
    x = np.maximum(numbers((2, 128, 28, 28)), 0)
    deep_layer.blobs["x"].data[...] = x
    deep_layer.forward()
    w, b = (blob.data for blob in deep_layer.params["y"])
    assert_close(deep_layer.blobs["y"].data, correlate(x, w, (1, 1), 1) + b.reshape(1, -1, 1, 1))
    for shape, outputs, more in [
        ((1, 16, 8, 8), 16, "pad: 1"),  # too small
        ((2, 128, 28, 28), 128, "pad: 1 stride: 2"),
        ((2, 128, 28, 28), 128, "pad: 2 dilation: 2"),
        ((2, 130, 28, 28), 128, "pad: 1"),  # no whole blocks
        ((2, 128, 28, 28), 128, "pad: 1 group: 128"),
    ]:
        assert not used(net_of(conv_net(shape, outputs, more), caffe.TEST)), (shape, more)


def test_an_array_in_the_place_of_a_freed_one_is_another() -> None:
    def versions() -> tuple[object, int]:
        return version_of(Operand(Blob((16,)), "data", plain((16,)), "read"))

    known, others = versions(), [versions() for _ in range(100)]  # each frees its array
    assert known not in others


@pytest.mark.usefixtures("always")
def test_it_is_not_chosen_where_products_have_no_fast_code(monkeypatch: pytest.MonkeyPatch) -> None:
    winograd_primitives.has_fast_products.cache_clear()
    monkeypatch.setattr(PrimitiveDesc, "implementation", "ref:any")
    assert not winograd_primitives.has_fast_products(16, 32, 48)
    monkeypatch.undo()
    winograd_primitives.has_fast_products.cache_clear()
    assert winograd_primitives.has_fast_products(16, 32, 48)


def test_parts_are_of_all_images() -> None:
    for images, channels, size in itertools.product((1, 2, 3, 7, 16, 65), (16, 128, 512), (7, 28, 112)):
        parts = Tiling((images, channels, size, size), channels, 1, (1, 1), 16).parts()
        covered = [n for first, count in parts for n in range(first, first + count)]
        assert covered == list(range(images))
        assert len({count for _, count in parts}) <= 2
        assert winograd.PLACES == IN * IN
