"""Weights between nets and files: what is copied by name, what fits, what is refused; HDF5 names; damage."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe import net_weights
from caffe.errors import WeightsError
from caffe.proto import caffe_pb2

INPUT = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 4 } } } '


def ip(name: str, bottom: str = "x", top: str = "", outputs: int = 3, extra: str = "") -> str:
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{top or name}" {extra} '
        f'inner_product_param {{ num_output: {outputs} weight_filler {{ type: "xavier" }} '
        'bias_filler { type: "uniform" } } } '
    )


def net_of(text: str, phase: int = caffe.TEST) -> caffe.Net:
    return caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), phase)


def values(net: caffe.Net) -> list[np.ndarray]:
    return [b.data.copy() for layer in net.layers for b in layer.blobs]


def assert_equal(a: list[np.ndarray], b: list[np.ndarray]) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


def write(net: caffe.Net, format: str, **options: bool) -> str:
    if format == "h5":
        net_weights.save_hdf5(net, "w.caffemodel.h5", **options)
        return "w.caffemodel.h5"
    net_weights.save(net, "w.caffemodel", **options)
    return "w.caffemodel"


both = pytest.mark.parametrize("format", ["binary", "h5"])


# -- names ------------------------------------------------------------------------------------------------

NAMES = [
    "plain",
    "a/b",
    "a/c/d",
    "a",
    "a/0",
    "/x",
    "x/",
    "a//b",
    ".",
    "a/./b",
    "#000001",
    "",
    "same",
    "same",
    "ß ü",
]


@both
def test_any_names_come_back(format: str) -> None:
    """Slashes, empty names, equal names, names that are no path, and those of a path's middle."""
    text = INPUT + "".join(ip(name, top=f"t{i}") for i, name in enumerate(NAMES))
    net, other = net_of(text), net_of(text)
    path = write(net, format)
    other.copy_from(path)
    assert_equal(values(net), values(other))


def test_names_in_hdf5_are_groups_as_in_the_original() -> None:
    net = net_of(INPUT + ip("ip1") + 'layer { name: "relu" type: "ReLU" bottom: "ip1" top: "ip1" }')
    net.save_hdf5("w.h5")
    with h5py.File("w.h5") as file:
        assert list(file) == ["data"]
        assert sorted(file["data"]) == ["in", "ip1", "relu"]
        assert sorted(file["data/ip1"]) == ["0", "1"]
        assert len(file["data/relu"]) == 0
        dataset = file["data/ip1/0"]
        assert (dataset.shape, dataset.dtype) == ((3, 4), np.dtype("<f4"))
        np.testing.assert_array_equal(dataset[()], net.params["ip1"][0].data)


@both
def test_layers_of_one_name_go_in_order_and_the_rest_to_the_last(format: str) -> None:
    two = INPUT + ip("ip", top="a") + ip("ip", top="b")
    one = INPUT + ip("ip")
    source, target = net_of(two), net_of(one)
    target.copy_from(write(source, format))
    assert_equal(values(target), [b.data for b in source.layers[-1].blobs])
    source, target = net_of(one), net_of(two)
    before = values(target)
    target.copy_from(write(source, format))
    assert_equal(values(target), values(source) + before[2:])


# -- sharing ----------------------------------------------------------------------------------------------

SHARED = (
    INPUT
    + ip("a", extra='param { name: "w" } param { name: "b" }', outputs=4)
    + ip("b", bottom="a", extra='param { name: "w" } param { name: "b2" }', outputs=4)
)


@both
def test_shared_parameters_come_back(format: str) -> None:
    net, other = net_of(SHARED), net_of(SHARED)
    path = write(net, format)
    other.copy_from(path)
    assert_equal(values(net), values(other))
    if format == "h5":
        with h5py.File(path) as file:
            assert list(file["data/b"]) == ["1"], "written once, under its owner"


def test_hdf5_without_an_unshared_parameter_is_refused() -> None:
    path = write(net_of(SHARED), "h5")
    apart = net_of(SHARED.replace('name: "w" } param { name: "b2"', 'name: "w2" } param { name: "b2"'))
    before = values(apart)
    with pytest.raises(WeightsError, match="Incompatible number of blobs for layer b"):
        apart.copy_from(path)
    assert_equal(before, values(apart))


# -- what fits --------------------------------------------------------------------------------------------


@both
def test_mismatch_has_the_originals_words_and_changes_nothing(format: str) -> None:
    Path("net.prototxt").write_text(INPUT + "\n" + ip("first") + "\n" + ip("fc8", outputs=5))
    source, target = net_of(INPUT + ip("first") + ip("fc8")), caffe.Net("net.prototxt", caffe.TEST)
    before = values(target)
    path = write(source, format)
    words = (
        "Cannot copy param 0 weights from layer 'fc8'; shape mismatch.  Source param shape is 3 4 (12); "
        "target param shape is 5 4 (20). To learn this layer's parameters from scratch rather than copying "
        f"from a saved net, rename the layer. (Source: {path}. "
        "In net.prototxt:3, give layer 'fc8' another name, such as 'fc8_new')"
    )
    with pytest.raises(WeightsError, match=re.escape(words)):
        target.copy_from(path)
    assert_equal(before, values(target))


@both
def test_another_number_of_parameters_is_refused(format: str) -> None:
    path = write(net_of(INPUT + ip("ip")), format)
    text = INPUT + 'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" '
    with pytest.raises(WeightsError, match="Incompatible number of blobs for layer ip: .* has 2, the net 1"):
        net_of(text + "inner_product_param { num_output: 3 bias_term: false } }").copy_from(path)
    path = write(net_of(text + "inner_product_param { num_output: 3 bias_term: false } }"), format)
    with pytest.raises(WeightsError, match="Incompatible number of blobs for layer ip: .* has 1, the net 2"):
        net_of(INPUT + ip("ip")).copy_from(path)


def message(*shapes: tuple[int, ...], legacy: bool = False) -> caffe_pb2.NetParameter:
    param = caffe_pb2.NetParameter()
    layer = param.layer.add(name="ip", type="InnerProduct")
    for i, shape in enumerate(shapes):
        blob = layer.blobs.add()
        if legacy:
            blob.num, blob.channels, blob.height, blob.width = shape
        else:
            blob.shape.dim.extend(shape)
        blob.data.extend(np.arange(np.prod(shape)) + 100 * i)
    return param


def test_legacy_shapes_fit_fewer_axes() -> None:
    net = net_of(INPUT + ip("ip"))
    for source in (message((1, 1, 3, 4), (1, 1, 1, 3), legacy=True), message((3, 4), (3,))):
        net.copy_from(source)
        np.testing.assert_array_equal(net.params["ip"][0].data, np.arange(12).reshape(3, 4))
        np.testing.assert_array_equal(net.params["ip"][1].data, 100 + np.arange(3))
    for wrong in (message((3, 4, 1, 1), (1, 1, 1, 3), legacy=True), message((1, 1, 3, 4), (3,))):
        with pytest.raises(WeightsError, match="shape mismatch"):
            net.copy_from(wrong)


def test_a_message_with_the_wrong_number_of_values() -> None:
    source = message((3, 4), (3,))
    source.layer[0].blobs[1].data.append(1)
    with pytest.raises(WeightsError, match=r"layer 'ip', param 1: shape \(3,\) does not fit its 4 values"):
        net_of(INPUT + ip("ip")).copy_from(source)


def test_double_data() -> None:
    source = message((3, 4), (3,))
    for blob in source.layer[0].blobs:
        blob.double_data.extend(2.0 * x for x in blob.data)
        del blob.data[:]
    net, other = net_of(INPUT + ip("ip")), net_of(INPUT + ip("ip"))
    net.copy_from(source)
    Path("d.caffemodel").write_bytes(source.SerializeToString())
    other.copy_from("d.caffemodel")
    np.testing.assert_array_equal(net.params["ip"][0].data, 2 * np.arange(12).reshape(3, 4))
    assert_equal(values(net), values(other))


@both
def test_diffs_are_written_when_asked_for(format: str) -> None:
    net = net_of(SHARED)
    for layer in net.layers:
        for blob in layer.blobs:
            blob.diff[...] = np.arange(blob.count).reshape(blob.shape)
    path = write(net, format, write_diff=True)
    if format == "h5":
        with h5py.File(path) as file:
            assert sorted(file["diff/b"]) == ["0", "1"], "the original writes those of sharers, too"
            np.testing.assert_array_equal(file["diff/a/0"][()], net.params["a"][0].diff)
    else:
        read = caffe_pb2.NetParameter.FromString(Path(path).read_bytes())
        np.testing.assert_array_equal(read.layer[1].blobs[1].diff, net.params["a"][1].diff)


def test_it_is_what_protobuf_writes(engine: str) -> None:
    net = net_of(SHARED)
    net.save("w.caffemodel")
    assert caffe_pb2.NetParameter.FromString(Path("w.caffemodel").read_bytes()) == net.to_proto()


# -- what is said -----------------------------------------------------------------------------------------


def test_a_line_for_each_layer(caplog: pytest.LogCaptureFixture) -> None:
    net_of(INPUT + ip("kept") + ip("gone")).save("w.caffemodel")
    net = net_of(INPUT + ip("kept") + ip("added"))
    caplog.set_level(logging.INFO, "caffe")
    caplog.clear()
    net.copy_from("w.caffemodel")
    assert [r.getMessage() for r in caplog.records] == [
        "Ignoring source layer gone",
        "Layer kept: copied 2 blob(s) from w.caffemodel",
        "Layer added: new, its parameters stay as they were filled",
    ]


def test_layers_of_an_earlier_file_are_not_called_new(caplog: pytest.LogCaptureFixture) -> None:
    net_of(INPUT + ip("first")).save("a.caffemodel")
    net_of(INPUT + ip("second")).save_hdf5("b.h5")
    net = net_of(INPUT + ip("first") + ip("second") + ip("third"))
    net.copy_from("a.caffemodel")
    caplog.set_level(logging.INFO, "caffe")
    caplog.clear()
    net.copy_from("b.h5")
    assert [r.getMessage() for r in caplog.records] == [
        "Layer first: not in b.h5, it keeps what was copied before",
        "Layer second: copied 2 blob(s) from b.h5",
        "Layer third: new, its parameters stay as they were filled",
    ]


def test_nothing_copied_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    net_of(INPUT + ip("conv1/7x7")).save("w.caffemodel")
    net_of(INPUT + ip("conv1_7x7")).copy_from("w.caffemodel")
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "nothing was copied" in warning
    assert "conv1_7x7; did you mean 'conv1/7x7'?" in warning


def test_unknown_fields_are_passed_over() -> None:
    net = net_of(INPUT + ip("ip"))
    net.save("w.caffemodel")
    layer = b"\x0a\x02ip" + b"\xaa\x3f\x03abc"  # field 1013, of a fork
    data = Path("w.caffemodel").read_bytes() + b"\xa2\x06" + bytes([len(layer)]) + layer + b"\xc8\x3e\x07"
    Path("fork.caffemodel").write_bytes(data)
    other = net_of(INPUT + ip("ip2"))
    other.copy_from("fork.caffemodel")  # its second layer "ip" has no blobs and no namesake here


# -- files that are none ----------------------------------------------------------------------------------


def unchanged(path: str, words: str) -> None:
    net = net_of(INPUT + ip("ip"))
    before = values(net)
    with pytest.raises(WeightsError, match=words) as caught:
        net.copy_from(path)
    assert path in str(caught.value)
    assert_equal(before, values(net))


def test_a_file_that_is_not_there() -> None:
    unchanged("nothing.caffemodel", "Couldn't open nothing.caffemodel: No such file")


@pytest.mark.parametrize("size", [0, 1, 8, 50, 0.5, 0.99])
@both
def test_truncated_files(format: str, size: float) -> None:
    path = write(net_of(INPUT + ip("ip")), format)
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[: size if isinstance(size, int) else int(size * len(data))])
    unchanged(path, "holds no weights|Couldn't open|holds no layers|damaged")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'name: "net"\nlayer { name: "ip" type: "InnerProduct" }\n', "looks like text"),
        (b"\x0a\x05empty", "holds no layers"),
        (bytes(range(256)) * 9, "holds no weights"),
    ],
)
def test_other_files(content: bytes, words: str) -> None:
    Path("x.caffemodel").write_bytes(content)
    unchanged("x.caffemodel", words)


def test_a_solver_state_is_no_weights() -> None:
    state = caffe_pb2.SolverState(iter=3, learned_net="x.caffemodel")
    Path("x.solverstate").write_bytes(state.SerializeToString())
    unchanged("x.solverstate", "solver state")


def test_hdf5_of_other_things() -> None:
    with h5py.File("a.h5", "w") as file:
        file["x"] = [1.0]
    unchanged("a.h5", "without a group 'data'")
    with h5py.File("b.h5", "w") as file:
        file["data/ip/0"] = np.array([[b"text"] * 4] * 3)
        file["data/ip/1"] = np.zeros(3)
    unchanged("b.h5", "layer 'ip', param 0 is of type .S4, not numbers")


def test_hdf5_that_is_damaged_inside() -> None:
    with h5py.File("c.h5", "w") as file:
        file["data/ip/1"] = np.zeros(3, "f")
        weight = np.random.default_rng(0).standard_normal((3, 4))
        dataset = file.create_dataset(
            "data/ip/0", data=weight, chunks=(3, 4), compression="gzip", fletcher32=True
        )
        offset = dataset.id.get_chunk_info(0).byte_offset
    with open("c.h5", "r+b") as file:
        file.seek(offset + 20)
        file.write(b"\0\1\2\3")
    unchanged("c.h5", "is damaged")


@both
def test_integers_and_doubles_become_floats(format: str) -> None:
    with h5py.File("i.h5", "w") as file:
        file["data/ip/0"] = np.arange(12).reshape(3, 4)
        file["data/ip/1"] = np.arange(3.0)
    net = net_of(INPUT + ip("ip"))
    net.load_hdf5("i.h5")
    np.testing.assert_array_equal(net.params["ip"][0].data, np.arange(12).reshape(3, 4))
    assert net.params["ip"][0].data.dtype == np.float32


# -- size -------------------------------------------------------------------------------------------------


def test_past_the_limit_of_protobuf(monkeypatch: pytest.MonkeyPatch) -> None:
    net = net_of(INPUT + ip("ip"))
    monkeypatch.setattr(net_weights, "BINARY_LIMIT", 100)
    with pytest.raises(
        WeightsError, match=r"a .caffemodel can have 2 at most: use save_hdf5, or snapshot_format: HDF5"
    ):
        net.save("w.caffemodel")
    assert not list(Path().iterdir())
    net.save_hdf5("w.h5")
    other = net_of(INPUT + ip("ip"))
    other.copy_from("w.h5")
    assert_equal(values(net), values(other))


@pytest.mark.full
def test_more_than_2_gb() -> None:
    """Really: 2.2 GB in one parameter, refused as binary proto, whole in HDF5."""
    text = (
        'layer { name: "p" type: "Parameter" top: "p" parameter_param { shape { dim: 22 dim: 25000000 } } }'
    )
    net = net_of(text)
    blob = net.params["p"][0]
    blob.data[:, 0] = np.arange(22)
    blob.data[-1, -1] = 7
    with pytest.raises(WeightsError, match="would have 2.05 GiB"):
        net.save("w.caffemodel")
    assert not Path("w.caffemodel").exists()
    net.save_hdf5("w.h5")
    del net, blob
    other = net_of(text)
    other.copy_from("w.h5")
    data = other.params["p"][0].data
    np.testing.assert_array_equal(data[:, 0], np.arange(22))
    assert (data[-1, -1], data[3, 5]) == (7, 0)
    Path("w.h5").unlink()


# -- fine-tuning ------------------------------------------------------------------------------------------


def test_several_files_each_give_what_they_have() -> None:
    a, b = net_of(INPUT + ip("one")), net_of(INPUT + ip("two"))
    a.save("a.caffemodel")
    b.save_hdf5("b.h5")
    net = caffe.Net(
        text_format.Parse(INPUT + ip("one") + ip("two"), caffe_pb2.NetParameter()),
        caffe.TEST,
        weights="a.caffemodel, b.h5",
    )
    assert_equal(values(net), values(a) + values(b))


def test_frozen_layers_are_not_run_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAFFE_ENGINE", "reference")  # whose kernels call the layer
    text = (
        INPUT
        + ip("frozen1", extra="param { lr_mult: 0 } param { lr_mult: 0 }")
        + ip("frozen2", bottom="frozen1", extra="param { lr_mult: 0 } param { lr_mult: 0 }")
        + ip("new", bottom="frozen2")
        + 'layer { name: "loss" type: "Reduction" bottom: "new" top: "loss" loss_weight: 1 }'
    )
    net = net_of(text, caffe.TRAIN)
    ran: list[str] = []
    for layer in net.layers:
        backward = layer.backward
        layer.backward = lambda *args, layer=layer, backward=backward: (
            ran.append(layer.name),
            backward(*args),
        )
    net.forward()
    net.backward()
    assert ran == ["loss", "new"]
