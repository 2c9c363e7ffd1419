"""HDF5Data: rows in their order, in blocks, shuffled, among ranks; and files that are not as they should be.
(Values of the original: tests/test_golden_data.py.)"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe.errors import DataError, LayerError
from caffe.layer_types import _hdf5_rows
from caffe.proto import caffe_pb2

ROWS = (5, 3, 4)


@pytest.fixture(autouse=True)
def files() -> None:
    """Three files whose rows are numbered through, `id` as numbers and `x` as (2, 3) arrays of them."""
    start = 0
    for i, rows in enumerate(ROWS):
        with h5py.File(f"f{i}.h5", "w") as file:
            ids = np.arange(start, start + rows)
            file["id"] = ids
            file["x"] = np.tile(ids[:, None, None], (1, 2, 3)) + np.arange(6.0).reshape(2, 3) / 8
        start += rows
    Path("list.txt").write_text("f0.h5\n\n  f1.h5 \nf2.h5")


def net(
    fields: str = "", phase: int = caffe.TRAIN, top: str = 'top: "id" top: "x"', extra: str = ""
) -> caffe.Net:
    source = "" if "source" in fields else 'source: "list.txt"'
    text = f'layer {{ name: "d" type: "HDF5Data" {top} {extra} hdf5_data_param {{ {source} {fields} }} }}'
    return caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), phase)


def ids(net: caffe.Net, batches: int) -> list[int]:
    found: list[int] = []
    for _ in range(batches):
        net.forward()
        found += net.blobs["id"].data.astype(int).tolist()
        wanted = net.blobs["id"].data[:, None, None] + np.arange(6).reshape(2, 3) / 8
        np.testing.assert_array_equal(net.blobs["x"].data, wanted)
    return found


@pytest.mark.parametrize("block", [1, 6 * 4 * 2, 1 << 24])
@pytest.mark.parametrize("batch", [1, 5, 12, 31])
def test_rows_follow_each_other_for_ever(batch: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_hdf5_rows, "_BLOCK", block)
    reader = net(f"batch_size: {batch}")
    assert reader.blobs["x"].shape == (batch, 2, 3)
    assert reader.blobs["id"].shape == (batch,)
    batches = 25 // batch + 1
    assert ids(reader, batches) == [i % 12 for i in range(batches * batch)]


def test_each_file_is_opened_once_in_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    plain = h5py.File
    monkeypatch.setattr(h5py, "File", lambda path, mode: opened.append(path) or plain(path, mode))
    reader = net("batch_size: 4")
    assert ids(reader, 3) == list(range(12))
    assert opened == ["f0.h5", "f1.h5", "f2.h5"]


def test_a_single_file_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("list.txt").write_text("f2.h5")
    assert ids(net("batch_size: 3"), 4) == [8, 9, 10, 11] * 3


@pytest.mark.parametrize("count", [1, 3])
def test_shuffled_each_epoch_has_every_row_once_in_another_order(count: int) -> None:
    Path("list.txt").write_text("\n".join(["f0.h5", "f1.h5", "f2.h5"][:count]))
    rows = sum(ROWS[:count])
    reader = net("batch_size: 1 shuffle: true")
    epochs = [ids(reader, rows) for _ in range(4)]
    assert all(sorted(epoch) == list(range(rows)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    # Files stay together, each in an order of its own.
    file_of = np.repeat(range(3), ROWS)
    for epoch in epochs:
        changes = sum(file_of[a] != file_of[b] for a, b in zip(epoch, epoch[1:], strict=False))
        assert changes == count - 1
    caffe.set_random_seed(1701)
    again = net("batch_size: 4 shuffle: true")
    assert ids(again, rows) == sum(epochs, [])
    caffe.set_random_seed(1702)
    assert ids(net("batch_size: 4 shuffle: true"), rows) != sum(epochs, [])


@pytest.mark.parametrize("shuffle", ["false", "true"])
@pytest.mark.parametrize("ranks", [2, 5, 20])
def test_ranks_share_the_rows(ranks: int, shuffle: str) -> None:
    fields = f"batch_size: 3 shuffle: {shuffle}"
    caffe.set_random_seed(5)
    whole = ids(net(fields), 2 * ranks)
    caffe.set_solver_count(ranks)
    for rank in range(ranks):
        caffe.set_solver_rank(rank)
        caffe.set_random_seed(5 + rank)  # as solvers do
        assert ids(net(fields), 2) == whole[rank::ranks]
    caffe.set_random_seed(5 + rank)
    assert ids(net(fields, caffe.TEST), 4) == whole[:12], "every rank tests on everything"


@pytest.mark.parametrize("shuffle", ["false", "true"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_another_reader_goes_on_from_its_state(ranks: int, shuffle: str) -> None:
    """The state is rank 0's; each rank goes on with its own rows."""
    fields = f"batch_size: 4 shuffle: {shuffle}"
    caffe.set_solver_count(ranks)
    for batches in (0, 1, 7):
        caffe.set_solver_rank(0)
        caffe.set_random_seed(3)
        first = net(fields)
        ids(first, batches)
        state = first.layers[0].save_state()
        for rank in range(ranks):
            caffe.set_solver_rank(rank)
            caffe.set_random_seed(3 + rank)
            through, resumed = net(fields), net(fields)
            resumed.run.reseed(through.run.seed)
            wanted = ids(through, batches + 2)[4 * batches :]
            resumed.layers[0].load_state(state)
            assert ids(resumed, 2) == wanted


def test_number_types_and_storage_become_float32() -> None:
    values = np.array([[-2, 3], [100, 7]])
    with h5py.File("t.h5", "w") as file:
        for kind in ("i1", "i8", "f2", "f8", ">i4", ">f4", "u2"):
            file[kind] = abs(values).astype(kind) if kind[0] == "u" else values.astype(kind)
        file.create_dataset("gz", data=values, compression="gzip", chunks=(1, 2))
    Path("t.txt").write_text("t.h5")
    for kind in ("i1", "i8", "f2", "f8", ">i4", ">f4", "u2", "gz"):
        reader = net('source: "t.txt" batch_size: 2', top=f'top: "{kind}"')
        reader.forward()
        got = reader.blobs[kind].data
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, abs(values) if kind == "u2" else values)


def test_a_file_may_be_rewritten_while_another_is_read() -> None:
    reader = net("batch_size: 5")
    assert ids(reader, 1) == [0, 1, 2, 3, 4]
    with h5py.File("f1.h5", "w") as file:
        file["id"] = np.arange(30, 32)
        file["x"] = np.tile(np.arange(30, 32)[:, None, None], (1, 2, 3)) + np.arange(6.0).reshape(2, 3) / 8
    assert ids(reader, 1) == [30, 31, 8, 9, 10]


# -- faults -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "extra", "words"),
    [
        ("batch_size: 0", "", "hdf5_data_param.batch_size must be positive, not 0"),
        ("batch_size: 1", "transform_param { scale: 2 }", "HDF5Data does not transform data"),
    ],
)
def test_refused_parameters(fields: str, extra: str, words: str) -> None:
    with pytest.raises(LayerError, match=words):
        net(fields, extra=extra)


def fault(words: str, fields: str = "batch_size: 1", top: str = 'top: "id" top: "x"') -> None:
    with pytest.raises(DataError, match=words) as caught:
        net(fields, top=top)
    assert "layer 'd' (HDF5Data)" in str(caught.value)


def test_a_list_with_a_byte_order_mark_and_line_ends_of_windows() -> None:
    Path("list.txt").write_bytes(b"\xef\xbb\xbff0.h5\r\nf1.h5\r\n")
    assert ids(net("batch_size: 8"), 1) == list(range(8))


def test_lists() -> None:
    fault("Failed to open source file: nothing.txt: No such file", 'source: "nothing.txt" batch_size: 1')
    Path("list.txt").write_text(" \n\n")
    fault("Must have at least 1 HDF5 filename listed in list.txt")
    Path("list.txt").write_text("missing.h5")
    fault("Failed opening HDF5 file: missing.h5: there is no such file")
    Path("list.txt").write_text("list.txt")
    fault("Failed opening HDF5 file: list.txt")


def test_datasets() -> None:
    fault(
        "f0.h5: Failed to find HDF5 dataset y; tops are datasets by name .there are: id, x.", top='top: "y"'
    )
    Path("list.txt").write_text("bad.h5")
    with h5py.File("bad.h5", "w") as file:
        file["text"] = np.array([b"a", b"b"])
        file["one"] = 1.0
        file["two"] = [1.0, 2.0]
        file["three"] = [1.0, 2.0, 3.0]
        file["none"] = np.zeros((0, 3))
    fault("bad.h5: Unsupported datatype class of dataset text", top='top: "text"')
    fault("bad.h5: dataset one is one number", top='top: "one"')
    fault("bad.h5: .*equally many rows, at least one, not two: 2, three: 3", top='top: "two" top: "three"')
    fault("bad.h5: .*equally many rows, at least one, not none: 0", top='top: "none"')


def test_files_that_disagree_or_vanish_on_the_way() -> None:
    with h5py.File("f1.h5", "w") as file:
        file["id"] = np.arange(5, 8)
        file["x"] = np.zeros((3, 3, 2))
    reader = net("batch_size: 5")
    reader.forward()
    with pytest.raises(DataError, match=r"f1.h5: rows of id, x have the shapes .*, those of the first file"):
        reader.forward()
    Path("f1.h5").unlink()
    with pytest.raises(DataError, match="layer 'd' .HDF5Data.: Failed opening HDF5 file: f1.h5"):
        reader.forward()


def test_truncated_files() -> None:
    Path("f0.h5").write_bytes(Path("f0.h5").read_bytes()[:1000])
    fault("Failed opening HDF5 file: f0.h5")
