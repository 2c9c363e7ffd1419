"""Weights, solver states and blobs as bytes.

Judges: protobuf's own reader and writer, the recorded files of the original and their HDF5 twins.
"""

from __future__ import annotations

import io
import logging
import os
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given, settings
from hypothesis import strategies as st

from caffe import wire
from caffe.errors import ProtoError, WireError
from caffe.proto import caffe_pb2 as pb
from caffe.wire import WireBlob
from proto_strategies import messages
from wire_spelling import Speller, assert_same_blobs, small_form, varint

GOLDEN = Path(__file__).parent / "golden"

READERS = {
    pb.NetParameter: wire.read_net_binary,
    pb.SolverState: wire.read_solver_state,
    pb.BlobProtoVector: wire.read_blob_vector,
}
WRITERS = {
    pb.NetParameter: wire.write_net_binary,
    pb.SolverState: wire.write_solver_state,
    pb.BlobProtoVector: wire.write_blob_vector,
}
KINDS = pytest.mark.parametrize("cls", READERS, ids=lambda cls: cls.DESCRIPTOR.name)


def blob(count: int = 3, dims: tuple[int, ...] | None = None) -> pb.BlobProto:
    proto = pb.BlobProto(data=np.arange(count, dtype=np.float32).tolist())
    proto.shape.dim[:] = dims or (count,)
    return proto


def net_of_each_format() -> pb.NetParameter:
    """V0, V1 and current layers in one message, each with a blob."""
    net = pb.NetParameter(name="n")
    net.layer.add(name="now", type="X").blobs.append(blob(3))
    net.layers.add(name="v1").blobs.append(blob(4))
    net.layers.add().layer.blobs.append(blob(5))
    return net


# ---------------------------------------------------------------- reading against protobuf


@KINDS
@given(data=st.data())
@settings(max_examples=80)
def test_reads_what_protobuf_writes(cls: type[Message], data: st.DataObject) -> None:
    message = data.draw(messages(cls).filter(lambda m: m.ListFields()))
    small, blobs = READERS[cls](message.SerializeToString())
    expected, arrays = small_form(message)
    assert small == expected
    assert_same_blobs(blobs, arrays)


@KINDS
@given(data=st.data())
@settings(max_examples=80)
def test_reads_every_spelling_of_a_message(cls: type[Message], data: st.DataObject) -> None:
    message = data.draw(messages(cls).filter(lambda m: m.ListFields()))
    spelled = Speller(data.draw, unknown=data.draw(st.booleans())).message(message)
    judged = cls.FromString(spelled)
    judged.DiscardUnknownFields()
    assert judged == message
    small, blobs = READERS[cls](spelled)
    expected, arrays = small_form(message)
    assert small == expected
    assert_same_blobs(blobs, arrays)


@given(data=st.data())
@settings(max_examples=80)
def test_reads_every_spelling_of_a_single_blob(data: st.DataObject) -> None:
    message = data.draw(messages(pb.BlobProto).filter(lambda m: m.ListFields()))
    proto, found = wire.read_blob(Speller(data.draw, unknown=True).message(message))
    expected, arrays = small_form(message)
    assert proto == expected
    assert_same_blobs([found], arrays)


def test_blobs_of_each_format_keep_their_tokens() -> None:
    net, blobs = wire.read_net_binary(net_of_each_format().SerializeToString())
    protos = [net.layer[0].blobs[0], net.layers[0].blobs[0], net.layers[1].layer.blobs[0]]
    for proto, count in zip(protos, (3, 4, 5), strict=True):
        assert proto.shape.dim == [count] and not proto.data
        assert blobs[wire.blob_index(proto)].data.tolist() == list(range(count))
    moved = pb.LayerParameter(blobs=net.layers[0].blobs)
    assert len(blobs[wire.blob_index(moved.blobs[0])].data) == 4


@pytest.mark.parametrize(("number", "form", "count"), [(5, "<f", 100_001), (8, "<d", 50_003), (5, "<f", 1)])
def test_long_runs_of_single_values(number: int, form: str, count: int) -> None:
    """One tag per number, as the oldest files have them: diff follows data, and data comes again."""
    wire_type = 5 if form == "<f" else 1
    tag = varint(number << 3 | wire_type)
    dtype = np.dtype(form)
    values = np.random.default_rng(1).standard_normal(count).astype(dtype)
    singles = b"".join(tag + value.tobytes() for value in values)
    diff = varint(6 << 3 | 5) + struct.pack("<f", 2.5)
    _, found = wire.read_blob(singles + diff + singles)
    np.testing.assert_array_equal(found.data, np.concatenate([values, values]))
    assert found.data.dtype == dtype
    assert found.diff.tolist() == [2.5]


def test_packed_arrays_are_views_of_the_file(tmp_path: Path) -> None:
    values = np.random.default_rng(2).standard_normal(10_000).astype(np.float32)
    raw = pb.BlobProto(data=values.tolist()).SerializeToString()
    _, found = wire.read_blob(raw)
    assert np.shares_memory(found.data, np.frombuffer(raw, np.uint8))
    np.testing.assert_array_equal(found.data, values)
    path = tmp_path / "mean.binaryproto"
    path.write_bytes(raw)
    _, found = wire.read_blob(path)
    base = found.data.base
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base, memoryview)
    np.testing.assert_array_equal(found.data, values)


def test_sources(tmp_path: Path) -> None:
    raw = net_of_each_format().SerializeToString()
    path = tmp_path / "w.caffemodel"
    path.write_bytes(raw)
    expected = wire.read_net_binary(raw)
    for source in (path, str(path), bytearray(raw), memoryview(raw)):
        net, blobs = wire.read_net_binary(source)
        assert net == expected[0]
        assert_same_blobs(blobs, expected[1])


def test_a_file_beyond_two_gigabytes(tmp_path: Path) -> None:
    """A sparse file: one layer with a blob of 2.5 GB, all zeros but the last value."""
    count = 5 * 2**27
    numbers = varint(5 << 3 | 2) + varint(4 * count)
    shape = pb.BlobProto(shape=pb.BlobShape(dim=[count])).SerializeToString()
    body = len(shape) + len(numbers) + 4 * count
    proto = varint(7 << 3 | 2) + varint(body) + shape + numbers
    layer = varint(100 << 3 | 2) + varint(len(proto) + 4 * count) + proto
    path = tmp_path / "large.caffemodel"
    with path.open("wb") as file:
        file.write(layer)
        file.seek(4 * (count - 1), io.SEEK_CUR)
        file.write(struct.pack("<f", 7.0))
        file.write(varint(1 << 3 | 2) + b"\x04last")
    net, blobs = wire.read_net_binary(path)
    assert net.name == "last"
    assert blobs[wire.blob_index(net.layer[0].blobs[0])].data.size == count
    assert blobs[0].data[0] == 0 and blobs[0].data[-1] == 7


def test_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    raw = net_of_each_format().SerializeToString()
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(pipe.write_bytes, raw)
        assert wire.read_net_binary(pipe)[0] == wire.read_net_binary(raw)[0]
        written.result()


# ---------------------------------------------------------------- recorded files


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("proto/model_*.npz")), ids=lambda path: path.stem)
def test_recorded_models_of_every_format(path: Path) -> None:
    net, blobs = wire.read_net_binary(path.with_suffix(".caffemodel"))
    loaded = np.load(path)
    compared = 0
    for layer in (*net.layer, *net.layers):
        name = layer.name
        protos = layer.blobs
        if isinstance(layer, pb.V1LayerParameter) and layer.HasField("layer"):
            name, protos = layer.layer.name, layer.layer.blobs
        for i, proto in enumerate(protos):
            if f"{name}_{i}" in loaded:
                expected = loaded[f"{name}_{i}"].ravel()
                np.testing.assert_array_equal(blobs[wire.blob_index(proto)].data.astype("f4"), expected)
                compared += 1
    assert compared >= 4


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.glob("nets/*/weights.caffemodel")), ids=lambda p: p.parent.name
)
def test_recorded_weights_equal_their_hdf5_twins(path: Path) -> None:
    net, blobs = wire.read_net_binary(path)
    compared = 0
    with h5py.File(path.with_suffix(".caffemodel.h5")) as twin:
        for layer in net.layer:
            for i, proto in enumerate(layer.blobs):
                if f"{i}" not in twin[f"data/{layer.name}"]:  # a shared parameter: only its owner stores it
                    continue
                expected = twin[f"data/{layer.name}/{i}"][...]
                assert list(proto.shape.dim) == list(expected.shape)
                np.testing.assert_array_equal(blobs[wire.blob_index(proto)].data, expected.ravel())
                compared += 1
    assert compared


def test_recorded_solver_states_equal_their_hdf5_twins() -> None:
    compared = 0
    for path in sorted(GOLDEN.glob("solvers/*/bin_iter_10.solverstate")):
        state, blobs = wire.read_solver_state(path)
        assert state.iter == 10
        twin_path = path.with_name("h5_iter_10.solverstate.h5")
        if not twin_path.exists():
            continue
        with h5py.File(twin_path) as twin:
            for i, proto in enumerate(state.history):
                expected = twin[f"history/{i}"][...]
                assert list(proto.shape.dim) == list(expected.shape)
                np.testing.assert_array_equal(blobs[wire.blob_index(proto)].data, expected.ravel())
                compared += 1
    assert compared > 100


def test_recorded_means() -> None:
    for path in sorted(GOLDEN.glob("data/mean_*.binaryproto")):
        proto, found = wire.read_blob(path)
        expected = pb.BlobProto.FromString(path.read_bytes())
        assert (proto.num, proto.channels, proto.height, proto.width) == (
            expected.num,
            expected.channels,
            expected.height,
            expected.width,
        )
        assert found.data.tolist() == list(expected.data)
        again = io.BytesIO()
        wire.write_blob(again, proto, found)
        assert again.getvalue() == path.read_bytes()


def test_recorded_files_are_written_again_byte_by_byte() -> None:
    """The original's writer as judge of ours."""
    compared = 0
    for path in sorted(GOLDEN.rglob("*.caffemodel")) + sorted(GOLDEN.rglob("*.solverstate")):
        cls = pb.NetParameter if path.suffix == ".caffemodel" else pb.SolverState
        if path.parent.name == "proto":  # some are written by hand, in other spellings
            continue
        again = io.BytesIO()
        WRITERS[cls](again, *READERS[cls](path))
        assert again.getvalue() == path.read_bytes(), path
        compared += 1
    assert compared > 100


# ---------------------------------------------------------------- writing against protobuf


def without_hidden_numbers(message: Message) -> Message:
    """As reading sees it: single numbers beside double ones are not there."""
    for field, value in message.ListFields():
        if isinstance(value, Message):
            without_hidden_numbers(value)
        elif field.message_type:
            for inner in value:
                without_hidden_numbers(inner)
    if isinstance(message, pb.BlobProto):
        for name in ("data", "diff"):
            if getattr(message, f"double_{name}"):
                message.ClearField(name)
    return message


@KINDS
@given(data=st.data())
@settings(max_examples=80)
def test_writes_what_protobuf_would(cls: type[Message], data: st.DataObject) -> None:
    message = without_hidden_numbers(data.draw(messages(cls)))
    small, blobs = small_form(message)
    out = io.BytesIO()
    WRITERS[cls](out, small, blobs)
    assert out.getvalue() == message.SerializeToString()
    assert wire.net_binary_size(small, blobs) == len(out.getvalue())
    assert cls.FromString(out.getvalue()) == message


def test_writes_arrays_of_any_layout() -> None:
    grid = np.arange(12, dtype=np.float32).reshape(3, 4)
    proto = pb.BlobProto(shape=pb.BlobShape(dim=[4, 3]))
    for array in (grid.T, np.ascontiguousarray(grid.T), grid.T[:, ::-1][:, ::-1]):
        out = io.BytesIO()
        wire.write_blob(out, proto, WireBlob(array, -array))
        written = pb.BlobProto.FromString(out.getvalue())
        assert list(written.data) == grid.T.ravel().tolist()
        assert list(written.diff) == (-grid.T).ravel().tolist()
    assert not proto.double_diff  # the caller's message is left alone


def test_writes_doubles_scalars_and_nothing() -> None:
    out = io.BytesIO()
    wire.write_blob(out, pb.BlobProto(num=1), WireBlob(np.array(2.5), np.empty(0, np.float32)))
    written = pb.BlobProto.FromString(out.getvalue())
    assert written == pb.BlobProto(num=1, double_data=[2.5])


def test_blobs_without_a_token_are_written_as_they_stand() -> None:
    net = net_of_each_format()
    out = io.BytesIO()
    wire.write_net_binary(out, net, [])
    assert out.getvalue() == net.SerializeToString()


def test_unknown_fields_of_a_parsed_message_survive_writing() -> None:
    raw = net_of_each_format().SerializeToString() + varint(5000 << 3) + b"\x07"
    out = io.BytesIO()
    wire.write_net_binary(out, pb.NetParameter.FromString(raw), [])
    assert varint(5000 << 3) + b"\x07" in out.getvalue()
    assert pb.NetParameter.FromString(out.getvalue()) == pb.NetParameter.FromString(raw)


def test_a_file_may_be_written_over_itself(tmp_path: Path) -> None:
    path = tmp_path / "w.caffemodel"
    net = pb.NetParameter(name="n")
    net.layer.add(name="a").blobs.append(blob(100_000))
    path.write_bytes(net.SerializeToString())
    small, blobs = wire.read_net_binary(path)
    small.name = "renamed"
    link = tmp_path / "link"
    link.symlink_to(path)
    wire.write_net_binary(link, small, blobs)
    assert link.is_symlink()
    net.name = "renamed"
    assert path.read_bytes() == net.SerializeToString()
    assert sorted(tmp_path.iterdir()) == [link, path]


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    net = net_of_each_format()
    with pytest.raises(ProtoError, match="No such file or directory"):
        wire.write_net_binary(tmp_path / "no" / "w", net, [])
    with pytest.raises(ProtoError, match="directory"):
        wire.write_net_binary(tmp_path, net, [])
    wire.write_net_binary("/dev/null", net, [])
    assert Path("/dev/null").is_char_device()


class FullDisk(io.BytesIO):
    def write(self, piece: object) -> int:
        raise OSError(28, "No space left on device")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.caffemodel"
    path.write_bytes(b"old")
    real = open

    def full(file: object, mode: str = "r") -> object:
        return FullDisk() if mode == "wb" and real(file, mode).close() is None else real(file, mode)

    monkeypatch.setattr("builtins.open", full)
    with pytest.raises(ProtoError, match="No space left"):
        wire.write_net_binary(path, net_of_each_format(), [])
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_more_than_two_gigabytes_are_refused_before_writing(tmp_path: Path) -> None:
    net = pb.NetParameter()
    wire.set_blob_index(net.layer.add(name="a").blobs.add(), 0)
    blobs = [WireBlob(np.broadcast_to(np.float32(0), (2**29,)))]
    assert wire.net_binary_size(net, blobs) > 2**31
    with pytest.raises(ProtoError, match=r"2147483647.*snapshot_format: HDF5"):
        wire.write_net_binary(tmp_path / "w", net, blobs)
    assert not list(tmp_path.iterdir())
    least = wire.net_binary_size(net, [WireBlob(np.broadcast_to(np.float32(0), (2**29 - 16,)))])
    assert 2**31 - 64 < least <= 2**31 - 1


@pytest.mark.parametrize(
    ("proto", "blobs", "words"),
    [
        (pb.BlobProto(double_diff=[1]), [WireBlob()], "token 1, but there are 1 blobs"),
        (pb.BlobProto(double_diff=[-1]), [WireBlob()], "token -1"),
        (pb.BlobProto(double_diff=[0.5]), [WireBlob()], "no token"),
        (pb.BlobProto(double_diff=[0, 1]), [WireBlob()], "no token"),
        (pb.BlobProto(double_diff=[0], data=[1]), [WireBlob()], "both numbers and a token"),
        (pb.BlobProto(double_diff=[0]), [WireBlob(np.zeros(2, np.float16))], "not from float16"),
        (pb.BlobProto(double_diff=[0]), [WireBlob(None, np.zeros(2, np.int64))], "not from int64"),
    ],
)
def test_what_cannot_be_written(proto: pb.BlobProto, blobs: list[WireBlob], words: str) -> None:
    net = pb.NetParameter(layer=[pb.LayerParameter(blobs=[proto])])
    with pytest.raises(ProtoError, match=words):
        wire.write_net_binary(io.BytesIO(), net, blobs)


def test_required_fields_are_asked_for_in_writing() -> None:
    net = pb.NetParameter(layer=[pb.LayerParameter(clip_param=pb.ClipParameter(min=1))])
    with pytest.raises(ProtoError, match="max"):
        wire.write_net_binary(io.BytesIO(), net, [])


def test_blob_index_of_a_blob_without_token() -> None:
    with pytest.raises(ProtoError, match="no token"):
        wire.blob_index(pb.BlobProto())


# ---------------------------------------------------------------- what forks wrote


def test_unknown_fields_are_passed_over_and_told(caplog: pytest.LogCaptureFixture) -> None:
    layer = pb.LayerParameter(name="a", blobs=[blob(3)]).SerializeToString()
    layer += varint(149 << 3 | 2) + b"\x03abc" + varint(206 << 3 | 5) + bytes(4)
    raw = varint(100 << 3 | 2) + varint(len(layer)) + layer
    raw += varint(9 << 3 | 2) + b"\x06MKLDNN"
    with caplog.at_level(logging.INFO, "caffe"):
        net, blobs = wire.read_net_binary(raw + raw)
    assert [layer.name for layer in net.layer] == ["a", "a"] and len(blobs) == 2
    assert len(caplog.records) == 1
    assert "LayerParameter 149, 206; NetParameter 9" in caplog.text


def test_a_forks_field_under_a_number_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    """DeepLab's interp_param is 143, ours is input_param; R-FCN's smooth_l1_loss_param has clip_param's."""
    interp = varint(143 << 3 | 2) + b"\x02" + varint(1 << 3 | 0) + b"\x09"
    smooth = varint(148 << 3 | 2) + b"\x05" + varint(1 << 3 | 5) + struct.pack("<f", 3.0)
    layer = pb.LayerParameter(name="a", blobs=[blob(3)]).SerializeToString() + interp + smooth
    with caplog.at_level(logging.INFO, "caffe"):
        net, blobs = wire.read_net_binary(varint(100 << 3 | 2) + varint(len(layer)) + layer)
    assert net.layer[0].name == "a" and blobs[0].data.tolist() == [0, 1, 2]
    assert not net.layer[0].HasField("clip_param")
    assert net.IsInitialized()
    assert "InputParameter 1; LayerParameter 148" in caplog.text


def test_nothing_is_logged_about_plain_files(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        wire.read_net_binary(net_of_each_format().SerializeToString())
    assert not caplog.records


def test_names_that_are_no_utf8() -> None:
    layer = varint(1 << 3 | 2) + b"\x03a\xb0\xa1"
    net, _ = wire.read_net_binary(varint(100 << 3 | 2) + varint(len(layer)) + layer)
    assert net.layer[0].name == r"a\xb0\xa1"


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"\x00\x01", "byte 0: 0 is no field number"),
        (b"\x0e\x01", "byte 0: wire type 6 of field 1 does not exist"),
        (b"\x0f\x01", "byte 0: wire type 7 of field 1 does not exist"),
        (b"\x0a\x01n\x0c", "byte 3: group 1 ends without having begun"),
        (b"\x0a\x01n\xfb\x7d\x08\x01", "the data end within a group"),
        (b"\x0a\x01n\xfb\x7d\xfc\x7e", "group 2031 ends where group 2015 is open"),
        (b"\x0a\x01n" + b"\xfb\x7d" * 101, "more than 100 groups"),
        (b"\x0a\x05abc", "byte 0: field 1 has 5 bytes, but its message ends after 3"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "byte 0: field 1 has 18446744073709551615 bytes"),
        (b"\x0a" + b"\x80" * 11, "byte 1: a number longer than 10 bytes"),
        (b"\x0a\x80", "byte 1: the data end within a number"),
        (b"\x0a\x01n\xa5", "byte 3: the data end within a number"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "is no field number"),
        (b"\x08\x01", "field name (1) has wire type 0"),
        (b"\x10\x01", "field layers (2) has wire type 0"),
        (b"\xa5\x06abcd", "field layer (100) has wire type 5"),
        (b"\xa2\x06\x02\x38\x01", "LayerParameter's field blobs (7) has wire type 0"),
        (b"\xa2\x06\x04\x3a\x02\x28\x01", "byte 5: BlobProto's field data (5) has wire type 0"),
        (b"\xa2\x06\x07\x3a\x05\x2a\x03abc", "byte 5: data has 3 bytes, which are no whole number"),
        (b"\xa2\x06\x06\x3a\x04\x2d\x03ab", "byte 5: field 5 has 4 bytes, but its message ends after 3"),
        (b"\xa2\x06\x04\x3a\x20\x2a\x01", "byte 3: field 7 has 32 bytes, but its message ends after 2"),
        (
            b"\xa2\x06\x06\x3a\x04\x3a\x02\x0a\x05",
            "byte 7: field 1 has 5 bytes, but its message ends after 0",
        ),
        (b"\xa2\x06\x07\x3a\x05\x3a\x03\x0a\x01\x80", "the data end within a number"),
        (b"\xc2\x3e\x03abc", "there is no field of NetParameter"),
    ],
)
def test_damage_is_told_with_its_place(raw: bytes, words: str) -> None:
    with pytest.raises(WireError) as caught:
        wire.read_net_binary(raw)
    assert words in str(caught.value)


def test_every_truncation_is_an_error_or_a_shorter_message() -> None:
    """Where a cut falls between two fields, protobuf too sees a complete, shorter message."""
    raw = net_of_each_format().SerializeToString()
    errors = 0
    for length in range(1, len(raw)):
        try:
            expected, arrays = small_form(pb.NetParameter.FromString(raw[:length]))
        except DecodeError:
            with pytest.raises(WireError, match="<bytes>: byte"):
                wire.read_net_binary(raw[:length])
            errors += 1
            continue
        net, blobs = wire.read_net_binary(raw[:length])
        assert net == expected
        assert_same_blobs(blobs, arrays)
    assert errors > len(raw) - 10


@given(st.data())
@settings(max_examples=400)
def test_changed_bytes_are_an_error_or_what_protobuf_reads(data: st.DataObject) -> None:
    raw = bytearray(net_of_each_format().SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        _, blobs = wire.read_net_binary(raw)
    except WireError:
        return
    expected = pb.NetParameter.FromString(bytes(raw))
    assert_same_blobs(blobs, small_form(expected)[1])


@given(st.binary(min_size=1, max_size=200), st.sampled_from([*READERS.values(), wire.read_blob]))
@settings(max_examples=400)
def test_random_bytes_are_read_or_a_wire_error(raw: bytes, read) -> None:
    try:
        read(raw)
    except WireError as error:
        assert str(error).startswith("<bytes>: ")


def test_lengths_that_lie_take_no_memory(tmp_path: Path) -> None:
    """Each claims an exabyte; nothing may be allocated for it."""
    for prefix in (b"\x0a", b"\xa2\x06", b"\xa2\x06\x0c\x3a", b"\x2a"):
        path = tmp_path / "x"
        path.write_bytes(prefix + varint(2**60))
        with pytest.raises(WireError, match=f"{path}: byte"):
            wire.read_net_binary(path)


def test_files_that_are_something_else(tmp_path: Path) -> None:
    weights = tmp_path / "w.caffemodel"
    weights.write_bytes(net_of_each_format().SerializeToString())
    with pytest.raises(WireError, match=r"wanted: SolverState.*looks like weights \(\.caffemodel\)"):
        wire.read_solver_state(weights)
    with pytest.raises(WireError, match=r"looks like weights"):
        wire.read_blob(weights)
    nameless = tmp_path / "nameless"
    nameless.write_bytes(pb.NetParameter(layer=[pb.LayerParameter(name="a")]).SerializeToString())
    with pytest.raises(WireError, match="there is no field of SolverState"):
        wire.read_solver_state(nameless)
    state = tmp_path / "s.solverstate"
    state.write_bytes(pb.SolverState(iter=5, learned_net="w", history=[blob()]).SerializeToString())
    with pytest.raises(WireError, match=r"wanted: NetParameter.*looks like a solver state"):
        wire.read_net_binary(state)
    text = tmp_path / "net.prototxt"
    text.write_text('name: "n"\nlayer { name: "a" }\n')
    with pytest.raises(WireError, match=r"looks like text"):
        wire.read_net_binary(text)
    hdf5 = tmp_path / "w.h5"
    h5py.File(hdf5, "w").close()
    with pytest.raises(WireError, match="HDF5"):
        wire.read_net_binary(hdf5)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ProtoError, match="File not found"):
        wire.read_net_binary(tmp_path / "none")
    with pytest.raises(ProtoError, match="is a directory"):
        wire.read_net_binary(tmp_path)
    (tmp_path / "empty").touch()
    with pytest.raises(WireError, match="empty: the file is empty"):
        wire.read_net_binary(tmp_path / "empty")
    with pytest.raises(WireError, match="empty"):
        wire.read_solver_state(b"")
