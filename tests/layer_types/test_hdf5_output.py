"""HDF5Output: what is in the file after which pass. (The recorded one: tests/test_golden_data.py.)"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe.errors import DataError, LayerError, ShapeError
from caffe.proto import caffe_pb2


def net(
    data: tuple[int, ...] = (3, 2), label: tuple[int, ...] = (3,), param: str = 'file_name: "o.h5"'
) -> caffe.Net:
    def shape(dims: tuple[int, ...]) -> str:
        return f"shape {{ {' '.join(f'dim: {d}' for d in dims)} }}"

    shapes = f"{shape(data)} {shape(label)}"
    text = f"""layer {{ name: "in" type: "Input" top: "x" top: "y" input_param {{ {shapes} }} }}
        layer {{ name: "out" type: "HDF5Output" bottom: "x" bottom: "y" hdf5_output_param {{ {param} }} }}"""
    return caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), caffe.TEST)


def feed(net: caffe.Net, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    found = []
    for name in ("x", "y"):
        found.append(rng.normal(size=net.blobs[name].shape).astype(np.float32))
        net.blobs[name].data[...] = found[-1]
    net.forward()
    return found[0], found[1]


def read() -> dict[str, np.ndarray]:
    with h5py.File("o.h5") as file:
        return {name: file[name][...] for name in file}


def test_passes_follow_each_other_and_the_file_is_whole_after_each(rng: np.random.Generator) -> None:
    n = net((3, 2, 5, 4))
    data, labels = [], []
    for _ in range(3):
        x, y = feed(n, rng)
        data.append(x)
        labels.append(y)
        found = read()
        assert set(found) == {"data", "label"}
        np.testing.assert_array_equal(found["data"], np.concatenate(data))
        np.testing.assert_array_equal(found["label"], np.concatenate(labels).reshape(-1, 1, 1, 1))
        assert found["data"].dtype == found["label"].dtype == np.float32


@pytest.mark.parametrize(
    ("shape", "written"),
    [
        ((4,), (4, 1, 1, 1)),
        ((4, 2), (4, 2, 1, 1)),
        ((4, 2, 3), (4, 2, 3, 1)),
        ((4, 2, 3, 1, 2), (4, 2, 3, 1, 2)),
    ],
)
def test_up_to_four_axes_become_four(
    rng: np.random.Generator, shape: tuple[int, ...], written: tuple[int, ...]
) -> None:
    n = net(shape, (4,))
    x, _ = feed(n, rng)
    np.testing.assert_array_equal(read()["data"], x.reshape(written))


def test_the_number_of_items_may_change(rng: np.random.Generator) -> None:
    n = net()
    feed(n, rng)
    n.blobs["x"].reshape(5, 2)
    n.blobs["y"].reshape(5)
    feed(n, rng)
    assert read()["data"].shape == (8, 2, 1, 1)


def test_a_file_that_is_there_stays_until_the_first_pass(rng: np.random.Generator) -> None:
    Path("o.h5").write_text("precious")
    n = net()
    assert Path("o.h5").read_text() == "precious"
    feed(n, rng)
    assert read()["data"].shape == (3, 2, 1, 1)
    feed(net(), rng)  # another net begins anew
    assert read()["data"].shape == (3, 2, 1, 1)


def test_what_was_written_can_be_read_by_hdf5data(rng: np.random.Generator) -> None:
    n = net()
    x, y = feed(n, rng)
    Path("list.txt").write_text("o.h5\n")
    text = """layer { name: "d" type: "HDF5Data" top: "data" top: "label"
        hdf5_data_param { source: "list.txt" batch_size: 3 } }"""
    again = caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), caffe.TEST)
    again.forward()
    np.testing.assert_array_equal(again.blobs["data"].data.reshape(x.shape), x)
    np.testing.assert_array_equal(again.blobs["label"].data.ravel(), y)


# -- what goes wrong ------------------------------------------------------------------------------------


def test_a_file_name_is_needed() -> None:
    with pytest.raises(LayerError, match="hdf5_output_param.file_name must be given"):
        net(param="")


def test_bottoms_of_different_length() -> None:
    with pytest.raises(ShapeError, match=r"the same number of items: shapes \(3, 2\) and \(4,\)"):
        net(label=(4,))


def test_a_place_that_cannot_be_written_is_found_at_set_up(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"layer 'out' .*cannot write 'no/o.h5': the folder 'no' does not exist"
    ):
        net(param='file_name: "no/o.h5"')
    with pytest.raises(DataError, match="it is a folder"):
        net(param=f'file_name: "{tmp_path}"')


def test_another_shape_on_the_way(rng: np.random.Generator) -> None:
    n = net()
    feed(n, rng)
    n.blobs["x"].reshape(3, 4)
    with pytest.raises(DataError, match=r"earlier passes wrote rows of shape \(2, 1, 1\) to /data"):
        n.forward()


def test_a_file_that_was_harmed_on_the_way(rng: np.random.Generator) -> None:
    n = net()
    feed(n, rng)
    Path("o.h5").write_bytes(b"gone")
    with pytest.raises(DataError, match="layer 'out' .HDF5Output.: cannot write 'o.h5'"):
        n.forward()
