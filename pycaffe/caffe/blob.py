"""Blob: an N-D array of numbers with its gradient, as layers exchange and learn them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import index
from typing import Any, NoReturn

import numpy as np

from .errors import CaffeError, ShapeError
from .html_table import html_table
from .proto import caffe_pb2
from .synced_mem import SyncedMem

MAX_AXES = 32


class BlobAttributeError(CaffeError, AttributeError):
    """An array that was to be replaced instead of written into."""


class Blob:
    """data and diff of one shape, in C order.

    shape: any number of axes up to 32, each 0 or more; () is a scalar. Memory is allocated at first
    use and starts as zeros. Reshaping keeps the memory, and the values in it, while it is large enough.

    Three ways in. `data` and `diff` are NumPy arrays for users: they may be kept, sliced and written at
    any time, and nets honour that. `cpu_data()`, `mutable_cpu_data()` and `overwrite_cpu_data()` (and
    the same for diff) are for layers: plain arrays for use within one call. `data_mem` and `diff_mem`
    are for engines. Source: Caffe's Blob and SyncedMemory.
    """

    __slots__ = ("_shape", "data_mem", "diff_mem", "_views", "__weakref__")

    def __init__(self, shape: Iterable[int] = (0,), dtype: np.dtype | type = np.float32):
        self._shape: tuple[int, ...] = _checked(tuple(shape))
        count = math.prod(self._shape)
        self.data_mem = SyncedMem(count, dtype)
        self.diff_mem = SyncedMem(count, dtype)
        self._views: dict[str, tuple[np.ndarray, tuple[int, ...], np.ndarray, np.ndarray]] = {}

    # -- shape ------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self._shape)

    @property
    def dtype(self) -> np.dtype:
        return self.data_mem.dtype

    @property
    def num_axes(self) -> int:
        return len(self._shape)

    def reshape(self, *shape: Any) -> None:
        """reshape(2, 3, 4, 4) or reshape((2, 3, 4, 4)). Raises ShapeError for what is no shape."""
        if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)):
            shape = tuple(shape[0])
        if shape == self._shape:
            return
        self._shape = _checked(shape)
        count = math.prod(self._shape)
        self.data_mem.resize(count)
        self.diff_mem.resize(count)

    def reshape_like(self, other: Blob) -> None:
        if other._shape != self._shape:
            self.reshape(other._shape)

    def canonical_axis(self, axis: int) -> int:
        """axis with negatives counted from the end. Raises ShapeError when it lies outside."""
        n = len(self._shape)
        if not -n <= axis < n:
            raise ShapeError(f"axis {axis} out of range for a {n}-D blob of shape {self.shape_string}")
        return axis % n

    def axis_count(self, start: int = 0, end: int | None = None) -> int:
        """Product of the dimensions from axis start to end (exclusive); Caffe's count(start, end)."""
        return math.prod(self._shape[start:end])

    @property
    def shape_string(self) -> str:
        """As the original prints it: "64 1 28 28 (50176)"."""
        return "".join(f"{d} " for d in self._shape) + f"({self.count})"

    def _legacy(self, axis: int) -> int:
        if len(self._shape) > 4:
            raise ShapeError(
                f"num, channels, height and width are for blobs of at most 4 axes, not {self._shape}; "
                "use shape"
            )
        return self._shape[axis] if axis < len(self._shape) else 1

    @property
    def num(self) -> int:
        return self._legacy(0)

    @property
    def channels(self) -> int:
        return self._legacy(1)

    @property
    def height(self) -> int:
        return self._legacy(2)

    @property
    def width(self) -> int:
        return self._legacy(3)

    def forget_host(self) -> None:
        """Free the host's copies where another place has the values and nobody views them."""
        for which, mem in (("data", self.data_mem), ("diff", self.diff_mem)):
            if mem.forget_host():
                self._views.pop(which, None)

    # -- arrays for users -------------------------------------------------------------------------

    @property
    def data(self) -> np.ndarray:
        """The values: an array to read and write, now or later (`blob.data[...] = x`)."""
        return self.data_mem.export().reshape(self._shape)

    @data.setter
    def data(self, value: Any) -> NoReturn:
        raise BlobAttributeError("can't set attribute: write into the array, blob.data[...] = x")

    @property
    def diff(self) -> np.ndarray:
        """The gradient, likewise."""
        return self.diff_mem.export().reshape(self._shape)

    @diff.setter
    def diff(self, value: Any) -> NoReturn:
        raise BlobAttributeError("can't set attribute: write into the array, blob.diff[...] = x")

    # -- arrays for layers ------------------------------------------------------------------------

    def _view(
        self, which: str, host: np.ndarray
    ) -> tuple[np.ndarray, tuple[int, ...], np.ndarray, np.ndarray]:
        writable = host[: math.prod(self._shape)].reshape(self._shape)
        readonly = writable.view()
        readonly.flags.writeable = False
        entry = self._views[which] = (host, self._shape, readonly, writable)
        return entry

    def _read(self, which: str, mem: SyncedMem) -> np.ndarray:
        host = mem.host if mem.host_fresh else mem.read()
        entry = self._views.get(which)
        if entry is None or entry[0] is not host or entry[1] is not self._shape:
            entry = self._view(which, host)  # type: ignore[arg-type]
        return entry[2]

    def _written(self, which: str, host: np.ndarray) -> np.ndarray:
        entry = self._views.get(which)
        if entry is None or entry[0] is not host or entry[1] is not self._shape:
            entry = self._view(which, host)
        return entry[3]

    def cpu_data(self) -> np.ndarray:
        """The values on the host, read-only."""
        return self._read("data", self.data_mem)

    def mutable_cpu_data(self) -> np.ndarray:
        """The values on the host, to be read and changed."""
        return self._written("data", self.data_mem.modify())

    def overwrite_cpu_data(self) -> np.ndarray:
        """Host memory for values that the caller writes wholly; what stands in it is undefined."""
        return self._written("data", self.data_mem.write())

    def cpu_diff(self) -> np.ndarray:
        """The gradient on the host, read-only."""
        return self._read("diff", self.diff_mem)

    def mutable_cpu_diff(self) -> np.ndarray:
        """The gradient on the host, to be read and changed (parameters: `+=`)."""
        return self._written("diff", self.diff_mem.modify())

    def overwrite_cpu_diff(self) -> np.ndarray:
        """Host memory for a gradient that the caller writes wholly."""
        return self._written("diff", self.diff_mem.write())

    # -- sharing ----------------------------------------------------------------------------------

    def share_data(self, other: Blob) -> None:
        """Become an alias of other's values (the element count must agree)."""
        if other.count != self.count:
            raise ShapeError(f"cannot share data: {other.shape_string} against {self.shape_string}")
        self.data_mem = other.data_mem

    def share_diff(self, other: Blob) -> None:
        """Become an alias of other's gradient (the element count must agree)."""
        if other.count != self.count:
            raise ShapeError(f"cannot share diff: {other.shape_string} against {self.shape_string}")
        self.diff_mem = other.diff_mem

    # -- sums -------------------------------------------------------------------------------------

    def asum_data(self) -> float:
        """Σ|x| over the data."""
        return float(np.abs(self.cpu_data()).sum(dtype=np.float64))

    def asum_diff(self) -> float:
        return float(np.abs(self.cpu_diff()).sum(dtype=np.float64))

    def sumsq_data(self) -> float:
        """Σx² over the data."""
        return _sumsq(self.cpu_data())

    def sumsq_diff(self) -> float:
        return _sumsq(self.cpu_diff())

    def scale_data(self, factor: float) -> None:
        self.mutable_cpu_data()[...] *= self.dtype.type(factor)

    def scale_diff(self, factor: float) -> None:
        self.mutable_cpu_diff()[...] *= self.dtype.type(factor)

    # -- messages ---------------------------------------------------------------------------------

    def to_proto(self, write_diff: bool = False) -> caffe_pb2.BlobProto:
        """A BlobProto with shape and values; for large nets see caffe.wire."""
        proto = caffe_pb2.BlobProto()
        proto.shape.dim.extend(self._shape)
        wide = self.dtype == np.float64
        (proto.double_data if wide else proto.data).extend(self.cpu_data().ravel())
        if write_diff:
            (proto.double_diff if wide else proto.diff).extend(self.cpu_diff().ravel())
        return proto

    def from_proto(self, proto: caffe_pb2.BlobProto, reshape: bool = True) -> None:
        """Take values (and diff, if present) from a BlobProto, old 4-D dimensions included.

        reshape: take its shape too; otherwise the shapes must agree (ShapeError).
        """
        shape = proto_shape(proto)
        if reshape:
            self.reshape(shape)
        elif not same_shape(shape, self._shape, legacy=not proto.HasField("shape")):
            raise ShapeError(f"shape mismatch: the message has {shape}, the blob {self._shape}")
        data = np.array(proto.double_data or proto.data, self.dtype)
        if data.size != self.count:
            raise ShapeError(f"a BlobProto of shape {shape} must hold {self.count} values, not {data.size}")
        self.overwrite_cpu_data()[...] = data.reshape(self._shape)
        diff = proto.double_diff or proto.diff
        if len(diff) == self.count and self.count:
            self.overwrite_cpu_diff()[...] = np.array(diff, self.dtype).reshape(self._shape)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has memory of its own."""
        return _copied, (self._shape, self.dtype.str, self.cpu_data().copy(), self.cpu_diff().copy())

    def __repr__(self) -> str:
        return f"<caffe.Blob {' x '.join(map(str, self._shape)) or 'scalar'}>"

    def _repr_html_(self) -> str:
        rows = [("", "least", "mean", "most", "standard deviation", "not finite")]
        rows += [_statistics("data", self.cpu_data()), _statistics("diff", self.cpu_diff())]
        return html_table(rows, repr(self)[1:-1])


def _copied(shape: tuple[int, ...], dtype: str, data: np.ndarray, diff: np.ndarray) -> Blob:
    blob = Blob(shape, np.dtype(dtype))
    blob.overwrite_cpu_data()[...] = data
    blob.overwrite_cpu_diff()[...] = diff
    return blob


def _statistics(name: str, values: np.ndarray) -> tuple[str, ...]:
    """A row for notebooks; of what is finite."""
    finite = values[np.isfinite(values)].astype(np.float64)
    bad = f"{values.size - finite.size:,}"
    if not finite.size:
        return (name, "", "", "", "", bad)
    numbers = (finite.min(), finite.mean(), finite.max(), finite.std())
    return (name, *(f"{number:.4g}" for number in numbers), bad)


def proto_shape(proto: caffe_pb2.BlobProto) -> tuple[int, ...]:
    """Shape of a BlobProto: its `shape`, or the old num, channels, height, width."""
    if proto.HasField("shape"):
        return tuple(proto.shape.dim)
    if any(proto.HasField(f) for f in ("num", "channels", "height", "width")):
        return (proto.num, proto.channels, proto.height, proto.width)
    return tuple(proto.shape.dim)


def same_shape(source: Sequence[int], target: Sequence[int], legacy: bool) -> bool:
    """Do the shapes agree? A legacy 4-D source also fits fewer axes, padded with leading ones."""
    if not legacy:
        return tuple(source) == tuple(target)
    return len(target) <= 4 and (1,) * (4 - len(target)) + tuple(target) == tuple(source)


def _sumsq(values: np.ndarray) -> float:
    flat = values.reshape(-1)
    return (
        float(np.dot(flat, flat))
        if flat.dtype == np.float64
        else float(np.einsum("i,i->", flat, flat, dtype=np.float64))
    )


def _checked(shape: tuple[Any, ...]) -> tuple[int, ...]:
    try:
        dims = tuple(index(d) for d in shape)
    except TypeError:
        raise ShapeError(f"every dimension must be an integer, but the shape is {shape}") from None
    if len(dims) > MAX_AXES:
        raise ShapeError(f"a blob has at most {MAX_AXES} axes, not {len(dims)}")
    if any(d < 0 for d in dims):
        raise ShapeError(f"every dimension must be 0 or more, but the shape is {dims}")
    return dims
