"""MemoryData: batches of arrays that a program hands over. (Recorded ones: tests/test_golden_data.py.)"""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe.errors import DataError, LayerError
from caffe.proto import caffe_pb2


def net(sizes: str = "batch_size: 2 channels: 1 height: 3 width: 2", more: str = "") -> caffe.Net:
    text = (
        f'layer {{ name: "d" type: "MemoryData" top: "x" top: "y" {more} memory_data_param {{ {sizes} }} }}'
    )
    return caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), caffe.TEST)


def arrays(count: int = 6, dtype: type = np.float32) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(count * 6).reshape(count, 1, 3, 2).astype(dtype), np.arange(count).astype(dtype)


def test_batches_go_round() -> None:
    n = net()
    data, labels = arrays()
    assert (n.blobs["x"].shape, n.blobs["y"].shape) == ((2, 1, 3, 2), (2,))
    n.layers[0].set_arrays(data, labels)
    for start in (0, 2, 4, 0, 2):
        n.forward()
        np.testing.assert_array_equal(n.blobs["x"].data, data[start : start + 2])
        np.testing.assert_array_equal(n.blobs["y"].data, labels[start : start + 2].reshape(2, 1, 1, 1))
    n.layers[0].set_arrays(data + 1, labels)  # begins anew
    n.forward()
    np.testing.assert_array_equal(n.blobs["x"].data, data[:2] + 1)


def test_arrays_are_kept_not_copied_and_not_written() -> None:
    n = net(more="", sizes="batch_size: 2 channels: 1 height: 3 width: 2")
    data, labels = arrays(2)
    n.layers[0].set_arrays(data, labels)
    data += 7
    n.forward()
    np.testing.assert_array_equal(n.blobs["x"].data, data)
    n.blobs["x"].data[...] = -1
    assert data.min() == 7


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float64, bool])
def test_numbers_of_any_type(dtype: type) -> None:
    n = net()
    data, labels = arrays(2, dtype)
    n.layers[0].set_arrays(np.asfortranarray(data), labels.reshape(2, 1, 1, 1))
    n.forward()
    np.testing.assert_array_equal(n.blobs["x"].data, data.astype(np.float32))
    np.testing.assert_array_equal(n.blobs["y"].data.ravel(), labels.astype(np.float32))


@pytest.mark.parametrize("restored_first", [True, False])
def test_a_resumed_run_goes_on(restored_first: bool) -> None:
    data, labels = arrays()
    first, second = net(), net()
    first.layers[0].set_arrays(data, labels)
    first.forward()
    state = first.layers[0].save_state()
    if restored_first:
        second.layers[0].load_state(state)
        second.layers[0].set_arrays(data, labels)
    else:
        second.layers[0].set_arrays(data, labels)
        second.layers[0].load_state(state)
    for n in (first, second):
        n.forward()
        np.testing.assert_array_equal(n.blobs["y"].data.ravel(), [2, 3])


def test_arrays_are_not_transformed(caplog: pytest.LogCaptureFixture) -> None:
    n = net(more="transform_param { scale: 5 }")
    data, labels = arrays(2)
    n.layers[0].set_arrays(data, labels)
    assert "layer 'd': MemoryData does not transform array data" in caplog.text
    n.forward()
    np.testing.assert_array_equal(n.blobs["x"].data, data)


# -- what goes wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["batch_size", "channels", "height", "width"])
def test_all_sizes_are_needed(missing: str) -> None:
    sizes = " ".join(f"{f}: 2" for f in ("batch_size", "channels", "height", "width") if f != missing)
    with pytest.raises(
        LayerError, match="batch_size, channels, height, and width must be specified and positive"
    ):
        net(sizes)


def test_forward_before_there_are_arrays() -> None:
    with pytest.raises(DataError, match=r"layer 'd' \(MemoryData\): MemoryDataLayer needs to be initialized"):
        net().forward()


DATA, LABELS = arrays(4)


@pytest.mark.parametrize(
    ("data", "labels", "message"),
    [
        (DATA[:3], LABELS[:3], "must be a multiple of batch size: 3 images, batch_size 2"),
        (DATA[:0], LABELS[:0], "must be a multiple of batch size: 0 images"),
        (DATA, LABELS[:2], r"the same first dimension: data has 4 images; labels .* not \(2,\)"),
        (DATA, LABELS.reshape(4, 1), r"labels must have the shape \(4,\) or \(4, 1, 1, 1\), not \(4, 1\)"),
        (DATA[:, 0], LABELS, r"data must have the shape \(n, 1, 3, 2\).*not \(4, 3, 2\)"),
        (DATA.transpose(0, 1, 3, 2), LABELS, r"data must have the shape \(n, 1, 3, 2\).*not \(4, 1, 2, 3\)"),
        (DATA.astype(str), LABELS, "data must be a NumPy array of numbers, not one of <U"),
        (DATA, LABELS.tolist(), "labels must be a NumPy array of numbers, not list"),
        (DATA.astype(complex), LABELS, "not one of complex128"),
    ],
)
def test_arrays_that_do_not_fit(data: np.ndarray, labels: np.ndarray, message: str) -> None:
    n = net()
    with pytest.raises(DataError, match=f"layer 'd' .*{message}"):
        n.layers[0].set_arrays(data, labels)
    n.layers[0].set_arrays(DATA, LABELS)  # nothing was changed by the attempt
    n.forward()
