"""Blob: shapes, arrays in and out, sharing, sums, messages."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from caffe.blob import Blob
from caffe.errors import CaffeError, ShapeError
from caffe.proto import caffe_pb2


def filled(*shape: int) -> Blob:
    blob = Blob(shape)
    blob.data[...] = np.arange(blob.count).reshape(shape)
    return blob


def test_shape_and_count() -> None:
    blob = Blob((2, 3, 4))
    assert blob.shape == (2, 3, 4) and blob.count == 24 and blob.num_axes == 3
    assert blob.axis_count(1) == 12 and blob.axis_count(1, 2) == 3 and blob.axis_count(3) == 1
    assert Blob(()).count == 1 and Blob(()).data.shape == ()
    assert Blob((0, 3)).data.shape == (0, 3)


def test_legacy_shape() -> None:
    blob = Blob((2, 3))
    assert (blob.num, blob.channels, blob.height, blob.width) == (2, 3, 1, 1)
    with pytest.raises(ShapeError, match="at most 4 axes"):
        _ = Blob((1, 1, 1, 1, 1)).num


@pytest.mark.parametrize(
    "shape, words",
    [
        ((-1, 2), "0 or more"),
        ((1,) * 33, "at most 32 axes"),
        ((1.5, 2), "must be an integer"),
        (("2", "3"), "must be an integer"),
        ((None, 3), "must be an integer"),
    ],
)
def test_impossible_shapes(shape: tuple, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        Blob(shape)
    with pytest.raises(ShapeError, match=words):
        Blob((1,)).reshape(*shape)


def test_canonical_axis() -> None:
    blob = Blob((2, 3))
    assert blob.canonical_axis(-1) == 1 and blob.canonical_axis(0) == 0
    with pytest.raises(ShapeError, match="axis 2"):
        blob.canonical_axis(2)


def test_reshape_keeps_values_and_capacity() -> None:
    blob = filled(2, 3)
    memory = blob.data_mem.host
    blob.reshape(3, 2)
    assert blob.data.tolist() == [[0, 1], [2, 3], [4, 5]]
    blob.reshape((1, 4))
    assert blob.data.tolist() == [[0, 1, 2, 3]] and blob.data_mem.host is memory
    blob.reshape(6)
    assert blob.data_mem.host is memory


def test_a_view_held_over_writes_is_the_blob() -> None:
    blob = Blob((2, 2))
    held = blob.data
    held[0] = 1
    blob.mutable_cpu_data()[1] = 2
    assert held.tolist() == [[1, 1], [2, 2]]
    assert blob.cpu_data().tolist() == held.tolist()


def test_arrays_for_reading_cannot_be_written() -> None:
    blob = Blob((2,))
    with pytest.raises(ValueError, match="read-only"):
        blob.cpu_data()[0] = 1
    with pytest.raises(AttributeError):
        blob.data = np.zeros(2)  # type: ignore[misc]


def test_views_for_layers_follow_the_shape() -> None:
    blob = filled(4)
    assert blob.cpu_data().shape == (4,)
    blob.reshape(2, 2)
    assert blob.cpu_data().shape == (2, 2) and blob.overwrite_cpu_diff().shape == (2, 2)
    assert blob.cpu_data() is blob.cpu_data()


def test_sharing() -> None:
    a, b = filled(2, 2), Blob((4,))
    b.share_data(a)
    b.data[0] = 9
    assert a.data[0, 0] == 9 and b.diff_mem is not a.diff_mem
    b.share_diff(a)
    a.diff[...] = 1
    assert b.diff.tolist() == [1] * 4
    with pytest.raises(ShapeError, match="cannot share"):
        Blob((3,)).share_data(a)


def test_sums_against_closed_forms() -> None:
    blob = Blob((3,))
    blob.data[...] = [1, -2, 3]
    blob.diff[...] = [-1, 0, 2]
    assert (blob.asum_data(), blob.sumsq_data(), blob.asum_diff(), blob.sumsq_diff()) == (6, 14, 3, 5)
    blob.scale_data(2)
    blob.scale_diff(-1)
    assert blob.data.tolist() == [2, -4, 6] and blob.diff.tolist() == [1, 0, -2]


def test_sum_of_squares_does_not_lose_small_terms() -> None:
    blob = Blob((1_000_001,))
    blob.data[...] = 1e-3
    blob.data[0] = 1e3
    assert blob.sumsq_data() == pytest.approx(1e6 + 1.0, rel=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_messages_round_trip(dtype: type) -> None:
    blob = Blob((2, 3), dtype)
    blob.data[...] = np.arange(6).reshape(2, 3) / 3
    blob.diff[...] = 4
    proto = blob.to_proto(write_diff=True)
    assert bool(proto.double_data) == (dtype == np.float64)
    other = Blob((1,), dtype)
    other.from_proto(caffe_pb2.BlobProto.FromString(proto.SerializeToString()))
    assert other.shape == (2, 3)
    assert np.array_equal(other.data, blob.data) and np.array_equal(other.diff, blob.diff)


def test_legacy_messages() -> None:
    proto = caffe_pb2.BlobProto(num=1, channels=1, height=2, width=3, data=range(6))
    blob = Blob((1,))
    blob.from_proto(proto)
    assert blob.shape == (1, 1, 2, 3)
    flat = Blob((2, 3))
    flat.from_proto(proto, reshape=False)
    assert flat.data.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ShapeError, match="mismatch"):
        Blob((3, 2)).from_proto(proto, reshape=False)
    proto.data.pop()
    with pytest.raises(ShapeError, match="must hold 6 values, not 5"):
        Blob((1,)).from_proto(proto)


def test_arrays_are_written_into_not_replaced() -> None:
    blob = Blob((2,))
    for name in ("data", "diff"):
        with pytest.raises(CaffeError, match=rf"write into the array, blob\.{name}\[\.\.\.\] = x") as caught:
            setattr(blob, name, np.zeros(2))
        assert isinstance(caught.value, AttributeError)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_copy_has_memory_of_its_own(dtype: type) -> None:
    blob = Blob((2, 1), dtype)
    blob.data[...], blob.diff[...] = 3, 4
    for duplicate in (copy.deepcopy(blob), pickle.loads(pickle.dumps(blob))):
        assert (duplicate.shape, duplicate.dtype) == ((2, 1), np.dtype(dtype))
        assert (duplicate.data == 3).all() and (duplicate.diff == 4).all()
        duplicate.data[...] = 5
        assert (blob.data == 3).all()
