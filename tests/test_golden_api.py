"""The Python interface: the same calls that were made on the original return the same things."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import caffe
import golden_vectors as golden
from caffe.errors import CaffeError
from golden_vectors import Comparison

# A small fully convolutional net: in-place ReLU, a blob with two readers, two outputs.
FCN = """
name: "fcn"
force_backward: true
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 7 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "lrn" type: "LRN" bottom: "conv" top: "lrn" lrn_param { local_size: 3 alpha: 0.3 } }
layer { name: "pool" type: "Pooling" bottom: "lrn" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "a" type: "Convolution" bottom: "pool" top: "a"
        convolution_param { num_output: 2 kernel_size: 1 } }
layer { name: "b" type: "TanH" bottom: "pool" top: "b" }
"""
CLASSIFIER = """
name: "mlp"
layer { name: "data" type: "Input" top: "data" top: "label"
        input_param { shape { dim: 2 dim: 4 } shape { dim: 2 } } }
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" inner_product_param { num_output: 5 } }
layer { name: "act" type: "Sigmoid" bottom: "ip1" top: "act" }
layer { name: "ip2" type: "InnerProduct" bottom: "act" top: "ip2" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""
DEPLOY = """
name: "deploy"
force_backward: true
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 4 } } }
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" inner_product_param { num_output: 5 } }
layer { name: "prob" type: "Softmax" bottom: "ip1" top: "prob" }
"""
SOLVER = """
net: "mlp.prototxt"
base_lr: 0.5
momentum: 0.5
lr_policy: "fixed"
max_iter: 4
snapshot_prefix: "snap"
snapshot_after_train: false
solver_mode: CPU
"""


@pytest.fixture
def draw() -> np.random.RandomState:
    """The generator of the recording's random inputs: what is drawn, and in which order, is part of it."""
    return np.random.RandomState(golden.api_seed())


class Record(Comparison):
    """Compares what a scenario returns, name by name, with what the original returned."""

    def __init__(self, scenario: str):
        super().__init__()
        self.wanted = golden.api_record(scenario)

    def see(self, **values: Any) -> None:
        for name, value in values.items():
            wanted = self.wanted.pop(name)
            if isinstance(wanted, (np.ndarray, float)):
                self(name, value, wanted, rtol=1e-4, atol=1e-5)
            else:
                self.equal(name, value, wanted)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        super().__exit__(kind, *rest)
        if kind is None:
            assert not self.wanted, f"recorded, but not compared: {sorted(self.wanted)}"


def build(text: str, phase: int, draw: np.random.RandomState) -> caffe.Net:
    Path("net.prototxt").write_text(text)
    net = caffe.Net("net.prototxt", phase)
    for blob in golden.param_blobs(net):
        blob.data[...] = draw.standard_normal(blob.data.shape) * 0.5
    return net


def float32(draw: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


def shapes(net: caffe.Net) -> dict[str, list[int]]:
    return {name: list(blob.data.shape) for name, blob in net.blobs.items()}


def test_names(draw: np.random.RandomState) -> None:
    net = build(FCN, caffe.TEST, draw)
    with Record("names") as record:
        record.see(
            inputs=list(net.inputs),
            outputs=list(net.outputs),
            layer_names=list(net._layer_names),
            blobs=list(net.blobs),
            params=list(net.params),
            types=[layer.type for layer in net.layers],
            nblobs=[len(layer.blobs) for layer in net.layers],
            tops={name: list(tops) for name, tops in net.top_names.items()},
            bottoms={name: list(bottoms) for name, bottoms in net.bottom_names.items()},
            layer_dict=[[name, layer.type] for name, layer in net.layer_dict.items()],
            shapes={name: list(blob.shape) for name, blob in net.blobs.items()},
        )


def test_legacy_shape(draw: np.random.RandomState) -> None:
    net = build(CLASSIFIER, caffe.TEST, draw)

    def legacy(name: str) -> list[int]:
        blob = net.blobs[name]
        return [blob.num, blob.channels, blob.height, blob.width, blob.count]

    with Record("legacy_shape") as record:
        record.see(
            data=legacy("data"),
            label=legacy("label"),
            loss_shape=list(net.blobs["loss"].shape),
            loss_dim=net.blobs["loss"].data.ndim,
            weights={name: float(weight) for name, weight in net.blob_loss_weights.items()},
        )


def test_reshape(draw: np.random.RandomState) -> None:
    net = build(FCN, caffe.TEST, draw)
    with Record("reshape") as record:
        for index, shape in enumerate([(1, 3, 11, 9), (3, 3, 8, 7), (1, 3, 5, 5)]):
            net.blobs["data"].reshape(*shape)
            net.reshape()
            record.see(**{f"shapes{index}": shapes(net)})
            net.blobs["data"].data[...] = draw.standard_normal(shape)
            outputs = net.forward()
            record.see(**{f"keys{index}": sorted(outputs), f"a{index}": outputs["a"]})
            net.blobs["a"].diff[...] = 1
            net.blobs["b"].diff[...] = 0.5
            net.backward()
            record.see(**{f"d{index}": net.blobs["data"].diff})
        # Without net.reshape(), forward does it.
        net.blobs["data"].reshape(2, 3, 6, 6)
        net.blobs["data"].data[...] = draw.standard_normal((2, 3, 6, 6))
        record.see(implicit=net.forward()["a"])


def test_partial_forward(draw: np.random.RandomState) -> None:
    net = build(FCN, caffe.TEST, draw)
    net.blobs["data"].data[...] = draw.standard_normal((2, 3, 8, 7))
    with Record("partial_forward") as record:
        outputs = net.forward(end="lrn")
        record.see(end_keys=sorted(outputs), end=outputs["lrn"])
        net.blobs["lrn"].data[...] = draw.standard_normal(net.blobs["lrn"].data.shape)
        outputs = net.forward(start="pool")
        record.see(start_keys=sorted(outputs), a=outputs["a"])
        record.see(both_keys=sorted(net.forward(start="pool", end="a")))
        outputs = net.forward(["conv", "pool"], data=float32(draw, (2, 3, 8, 7)))
        record.see(blob_keys=sorted(outputs), conv=outputs["conv"], pool=outputs["pool"])


def test_partial_backward(draw: np.random.RandomState) -> None:
    net = build(FCN, caffe.TEST, draw)
    net.forward(data=float32(draw, (2, 3, 8, 7)))
    net.clear_param_diffs()

    def fill(name: str) -> None:
        net.blobs[name].diff[...] = draw.standard_normal(net.blobs[name].data.shape)

    with Record("partial_backward") as record:
        top_diffs = {name: float32(draw, net.blobs[name].data.shape) for name in ("a", "b")}
        diffs = net.backward(["pool"], **top_diffs)
        record.see(keys=sorted(diffs), data=diffs["data"], pool=diffs["pool"], w=net.params["conv"][0].diff)
        net.clear_param_diffs()
        fill("pool")
        record.see(keys2=sorted(net.backward(start="pool", end="conv")))
        record.see(w2=net.params["conv"][0].diff, a2=net.params["a"][0].diff, conv2=net.blobs["conv"].diff)
        fill("lrn")
        record.see(keys3=sorted(net.backward(start="lrn", end="relu")), conv3=net.blobs["conv"].diff)


def test_forward_all(draw: np.random.RandomState) -> None:
    """More items than a batch holds, and not a multiple of it."""
    net = build(DEPLOY, caffe.TEST, draw)
    items = float32(draw, (5, 4))
    with Record("forward_all") as record:
        outputs = net.forward_all(data=items)
        record.see(keys=sorted(outputs), prob=outputs["prob"])
        outputs = net.forward_all(blobs=["ip1"], data=items)
        record.see(keys2=sorted(outputs), ip1=outputs["ip1"])
        outputs, diffs = net.forward_backward_all(data=items, prob=float32(draw, (5, 5)))
        record.see(keys3=[sorted(outputs), sorted(diffs)], data=diffs["data"])


def test_save_and_load(draw: np.random.RandomState) -> None:
    net = build(CLASSIFIER, caffe.TRAIN, draw)
    net.save("w.caffemodel")
    net.save_hdf5("w.h5")
    ways = {
        "file": lambda other: other.copy_from("w.caffemodel"),
        "hdf5": lambda other: other.load_hdf5("w.h5"),
        "h5_copy": lambda other: other.copy_from("w.h5"),
        "share": lambda other: other.share_with(net),
    }
    with Record("save_load") as record:
        for way, load in ways.items():
            other = build(CLASSIFIER, caffe.TRAIN, draw)
            load(other)
            pairs = zip(golden.param_blobs(net), golden.param_blobs(other), strict=True)
            record.see(**{way: [bool(np.array_equal(ours.data, theirs.data)) for ours, theirs in pairs]})
        net.params["ip1"][0].data[...] += 1
        record.see(shared=bool(np.array_equal(net.params["ip1"][0].data, other.params["ip1"][0].data)))
        by_position = caffe.Net("net.prototxt", "w.caffemodel", caffe.TEST)
        by_keyword = caffe.Net("net.prototxt", caffe.TEST, weights="w.caffemodel")
        record.see(ctor=by_position.params["ip2"][1].data, ctor_kw=by_keyword.params["ip2"][1].data)


def test_diffs_accumulate(draw: np.random.RandomState) -> None:
    net = build(CLASSIFIER, caffe.TRAIN, draw)
    net.blobs["data"].data[...] = draw.standard_normal((2, 4))
    net.blobs["label"].data[...] = [2, 0]
    diff = net.params["ip1"][0].diff
    with Record("accumulate") as record:
        record.see(loss=float(net.forward()["loss"]))
        net.backward()
        record.see(d1=diff)
        net.forward()
        net.backward()
        record.see(d2=diff)
        net.clear_param_diffs()
        record.see(d0=diff)


def test_solver(draw: np.random.RandomState) -> None:
    Path("mlp.prototxt").write_text(CLASSIFIER)
    Path("solver.prototxt").write_text(SOLVER)
    solver = caffe.SGDSolver("solver.prototxt")
    weights = solver.net.params["ip1"][0]
    calls: list[str] = []
    with Record("solver") as record:
        record.see(
            type=type(caffe.get_solver("solver.prototxt")).__name__,
            iter0=solver.iter,
            ntest=len(solver.test_nets),
            max_iter=solver.param.max_iter,
            display=solver.param.display,
        )
        for blob in golden.param_blobs(solver.net):
            blob.data[...] = draw.standard_normal(blob.data.shape) * 0.4
        solver.net.blobs["data"].data[...] = draw.standard_normal((2, 4))
        solver.net.blobs["label"].data[...] = [1, 2]
        solver.add_callback(lambda: calls.append("start"), lambda: calls.append("gradients"))
        solver.step(2)
        record.see(iter=solver.iter, calls=list(calls), w1=weights.data)
        # By hand: the update counts as an iteration.
        solver.net.forward()
        solver.net.backward()
        solver.apply_update()
        record.see(w2=weights.data, iter2=solver.iter)
        solver.step(0)
        record.see(iter3=solver.iter)
        solver.snapshot()
        record.see(files=sorted(path.name for path in Path().glob("snap*")))
        solver.solve()
        record.see(iter4=solver.iter, w4=weights.data)
        resumed = caffe.get_solver("solver.prototxt")
        resumed.restore("snap_iter_3.solverstate")
        record.see(restored=resumed.iter, wr=resumed.net.params["ip1"][0].data)


def test_io(draw: np.random.RandomState) -> None:
    io = caffe.io
    array = float32(draw, (2, 3, 4))
    pixels = draw.randint(0, 256, (3, 4, 5)).astype(np.uint8)

    def described(datum: Any) -> list[int]:
        sizes = [len(datum.data), len(datum.float_data)]
        return [datum.channels, datum.height, datum.width, datum.label, *sizes]

    with Record("io") as record:
        record.see(blob=io.blobproto_to_array(io.array_to_blobproto(array)))
        datum = io.array_to_datum(pixels, 7)
        record.see(datum=described(datum), datum_back=io.datum_to_array(datum))
        record.see(fdatum=described(io.array_to_datum(array, 2)))
        vector = io.arraylist_to_blobprotovector_str([array])
        record.see(vector=io.blobprotovector_str_to_arraylist(vector)[0])

        transformer = io.Transformer({"data": (1, 3, 6, 5)})
        transformer.set_transpose("data", (2, 0, 1))
        transformer.set_channel_swap("data", (2, 1, 0))
        transformer.set_raw_scale("data", 255)
        transformer.set_mean("data", np.array([104.0, 117.0, 123.0]))
        transformer.set_input_scale("data", 0.017)
        image = draw.uniform(size=(6, 5, 3)).astype(np.float32)
        ready = transformer.preprocess("data", image)
        record.see(pre=ready.copy(), dep=transformer.deprocess("data", ready))

        transformer = io.Transformer({"data": (1, 3, 6, 5)})
        transformer.set_transpose("data", (2, 0, 1))
        transformer.set_mean("data", draw.uniform(size=(3, 6, 5)))
        record.see(pre2=transformer.preprocess("data", image))
        images = [draw.uniform(size=(7, 8, 3)).astype(np.float32) for _ in range(2)]
        record.see(over=io.oversample(images, (5, 4)))


def test_net_spec() -> None:
    layers, params = caffe.layers, caffe.params
    net = caffe.NetSpec()
    net.data, net.label = layers.DummyData(shape=[{"dim": [2, 3, 8, 8]}, {"dim": [2]}], ntop=2)
    net.conv = layers.Convolution(
        net.data,
        kernel_size=3,
        num_output=4,
        weight_filler={"type": "xavier"},
        param=[{"lr_mult": 1}, {"lr_mult": 2}],
    )
    net.relu = layers.ReLU(net.conv, in_place=True)
    net.pool = layers.Pooling(net.relu, pool=params.Pooling.MAX, kernel_size=2, stride=2)
    net.a, net.b = layers.Slice(net.pool, ntop=2, slice_param={"axis": 1, "slice_point": [1]})
    net.cat = layers.Concat(net.a, net.b, axis=1)
    net.ip = layers.InnerProduct(net.cat, num_output=2, name="fc")
    net.loss = layers.SoftmaxWithLoss(net.ip, net.label, loss_weight=0.5)
    with Record("netspec") as record:
        record.see(anonymous=str(caffe.to_proto(net.loss, net.cat)).splitlines())
        record.see(net=str(net.to_proto()).splitlines())


def test_constants_seeds_and_errors() -> None:
    def mask(seed: int) -> np.ndarray:
        caffe.set_random_seed(seed)
        net = caffe.Net("dropout.prototxt", caffe.TRAIN)
        net.blobs["x"].data[...] = 1
        net.forward()
        return net.blobs["y"].data.copy()

    Path("dropout.prototxt").write_text(
        'layer { name: "i" type: "Input" top: "x" input_param { shape { dim: 200 } } }'
        'layer { name: "d" type: "Dropout" bottom: "x" top: "y" }'
    )
    first = mask(5)
    with Record("misc") as record:
        record.see(version=caffe.__version__, TRAIN=int(caffe.TRAIN), TEST=int(caffe.TEST))
        # There may be more.
        record.see(types=sorted({*caffe.layer_type_list()} & {*record.wanted["types"]}))
        record.see(seed_same=bool(np.array_equal(first, mask(5))))
        record.see(seed_differs=not np.array_equal(first, mask(6)))
        net = caffe.Net("dropout.prototxt", caffe.TRAIN)
        wrong_calls = {
            "unknown_blob": lambda: net.forward(["zzz"]),
            "bad_input": lambda: net.forward(zzz=np.zeros(1)),
            "bad_batch": lambda: net.forward(x=np.zeros((3, 1), np.float32)),
        }
        for name, call in wrong_calls.items():
            with pytest.raises((CaffeError, KeyError, ValueError)):
                call()
            record.see(**{name: "raised"})
