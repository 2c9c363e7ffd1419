"""Feed: the layer that gives a net what Python holds: arrays, data sets, iterators.

In a net's definition it is a Python layer whose param_str names a source of this process; m.save writes
arrays as HDF5Data layers, which read the same numbers in the same order, in their place.

    python_param { module: "caffe.model.feed" layer: "Feed" param_str: "<key>" }
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from ..blob import Blob
from ..context import solver_count, solver_rank
from ..errors import DataError, ForkError, LayerError
from ..layer import Layer
from ..layer_types._ranks import common_seed
from ..prefetch import Batch, Places, Prefetcher
from ..proto import caffe_pb2
from ..random_streams import Stream

Arrays = Sequence[np.ndarray]

_sources: weakref.WeakValueDictionary[str, FeedSource] = weakref.WeakValueDictionary()
_numbers = count()


class Reader(ABC):
    """One net's way through a source. position: what save_state keeps."""

    position: int = 0

    @abstractmethod
    def next(self) -> Arrays:
        """The next batch, for ever."""

    @abstractmethod
    def seek(self, position: int) -> None:
        """Let the next batch be the one that came when `position` said this."""

    def close(self) -> None:  # noqa: B027  most have nothing to end
        """End threads; harmless when repeated."""


class FeedError(DataError, LayerError):
    """Data in Python that cannot be read: names the layer and its line."""


class FeedSource(ABC):
    """Data in Python. key: its name in nets of this process. shapes: of a batch, per top. entries: how many
    items it repeats; None where nobody knows. batches: that a test shall run; None likewise."""

    shapes: list[tuple[int, ...]]
    entries: int | None = None
    batches: int | None = None

    def __init__(self) -> None:
        self.key = f"feed {next(_numbers)}"
        self.names: list[str] = []  # of a batch's arrays, where batches are dicts
        _sources[self.key] = self

    def state_at(self, position: int) -> dict[str, Any]:
        """What a resume file keeps of a reader's position."""
        return {"position": position}

    def position_in(self, state: Mapping[str, Any]) -> int:
        """The position that a resume file has kept."""
        return state["position"]

    def arrays_of(self, batch: Any) -> Arrays:
        """A batch's arrays in the order of the first batch's, found by name where they have names."""
        names, arrays = named_arrays(batch)
        if names == self.names:
            return arrays
        if sorted(names) != sorted(self.names):
            raise DataError(f"a batch has the arrays {names}, the first had {self.names}")
        return [arrays[names.index(name)] for name in self.names]

    @abstractmethod
    def open(self, seed: tuple[int, ...], layer: Layer) -> Reader:
        """A way through it, from the beginning. seed: of its order, the same on all ranks."""


class Feed(Layer):
    """top[i] = the next batch's array i of the source that param_str names.

    top[i]: the shape of that array, which may change from batch to batch; numbers of any type become float32.
    In TRAIN, rank r of R solvers takes rows r, r + R ... of arrays and data sets. No gradient.
    Raises FeedError when the source is not of this process, for batches that are no arrays, or not those of
    the first batch, and for what goes wrong in the program's own iterators and data sets.
    """

    exact_num_bottom = 0
    min_top = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._source = _sources.get(self.param_str)  # type: ignore[attr-defined]
        if self._source is None:
            raise self._fault(
                "its data were in the Python program that made this net, and are not here. m.save() writes "
                "arrays into files for other programs; of data sets and iterators, write a database or HDF5"
            )
        if len(self._source.shapes) != len(top):
            raise self._fault(f"the source gives {len(self._source.shapes)} arrays for {len(top)} tops")
        self._reader = self._source.open(common_seed(self.run.seed), self)
        for blob, shape in zip(top, self._source.shapes, strict=True):
            blob.reshape(shape)

    def _fault(self, message: str) -> FeedError:
        return FeedError(message, layer=self.name, layer_type="Feed")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        pass

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        try:
            arrays = self._reader.next()
        except ForkError:
            raise
        except Exception as error:  # of the program's own code, whatever it is
            about = str(error) if isinstance(error, DataError) else f"its data failed: {error!r}"
            raise self._fault(about) from error
        if len(arrays) != len(top):
            raise self._fault(f"a batch has {len(arrays)} arrays, the first had {len(top)}")
        for blob, array in zip(top, arrays, strict=True):
            if blob.shape != array.shape:
                blob.reshape(array.shape)
            np.copyto(blob.overwrite_cpu_data(), array, casting="unsafe")

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """There is nothing below."""

    @property
    def state_type(self) -> str:
        return "HDF5Data" if isinstance(self._source, ArraySource) else self.type

    def save_state(self) -> dict[str, Any]:
        assert self._source is not None
        return self._source.state_at(self._reader.position)

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._reader.close()
        assert self._source is not None
        self._reader = self._source.open(common_seed(self.run.seed), self)
        self._reader.seek(self._source.position_in(state))


class Order:
    """Which row stands at a place of the endless stream: as they are, or shuffled anew in each epoch.

    The numbers are those of an HDF5Data layer of the same name, so that a file of the rows gives the same.
    """

    def __init__(self, rows: int, shuffle: bool, seed: tuple[int, ...], name: str):
        self._rows, self._stream = rows, Stream(seed, f"{name}/shuffle") if shuffle else None
        self._lock = threading.Lock()
        self._epochs: dict[int, np.ndarray] = {}

    def rows(self, places: range) -> np.ndarray:
        epochs, rows = np.divmod(np.asarray(places), self._rows)
        if self._stream is None:
            return rows
        with self._lock:
            result = np.empty_like(rows)
            for epoch in np.unique(epochs):
                here = epochs == epoch
                result[here] = self._permutation(int(epoch))[rows[here]]
            return result

    def _permutation(self, epoch: int) -> np.ndarray:
        if epoch not in self._epochs:
            assert self._stream is not None
            for old in [e for e in self._epochs if e < epoch - 1]:
                del self._epochs[old]
            self._epochs[epoch] = self._stream.generator(epoch, 1).permutation(self._rows)
        return self._epochs[epoch]


def _ranks(layer: Layer) -> tuple[int, int]:
    """rank and number of ranks; when testing, every rank reads all of it."""
    return (0, 1) if layer.phase == caffe_pb2.TEST else (solver_rank(), solver_count())


class ArraySource(FeedSource):
    """Arrays with the same number of rows; batches run on past the end to the first rows again."""

    def __init__(self, arrays: Mapping[str, np.ndarray], batch_size: int, shuffle: bool):
        super().__init__()
        self.arrays, self.batch_size, self.shuffle = dict(arrays), batch_size, shuffle
        self.entries = len(next(iter(self.arrays.values())))
        self.batches = max(1, self.entries // batch_size)
        self.shapes = [(batch_size, *a.shape[1:]) for a in self.arrays.values()]

    # As an HDF5Data layer keeps its place in a file of these rows: either goes on where the other was.

    def state_at(self, position: int) -> dict[str, Any]:
        epoch, row = divmod(position, self.entries or 1)
        return {"epoch": epoch, "slot": 0, "row": row, "wait": 0}

    def position_in(self, state: Mapping[str, Any]) -> int:
        return state["epoch"] * (self.entries or 1) + state["row"] + state["wait"]

    def open(self, seed: tuple[int, ...], layer: Layer) -> Reader:
        return _ArrayReader(self, Order(self.entries or 0, self.shuffle, seed, layer.name), _ranks(layer))


class _ArrayReader(Reader):
    def __init__(self, source: ArraySource, order: Order, ranks: tuple[int, int]):
        self._arrays, self._order = list(source.arrays.values()), order
        self._batch_size, (self._rank, self._ranks) = source.batch_size, ranks
        self._rows = source.entries or 0
        self._plain = not source.shuffle and self._ranks == 1

    def seek(self, position: int) -> None:
        self.position = position

    def next(self) -> Arrays:
        start = self.position
        self.position += self._batch_size * self._ranks
        first = start % self._rows
        if self._plain and first + self._batch_size <= self._rows:
            return [a[first : first + self._batch_size] for a in self._arrays]
        rows = self._order.rows(range(start + self._rank, self.position + self._rank, self._ranks))
        return [a[rows] for a in self._arrays]


Collate = Callable[[list[Any]], Any]


class ItemSource(FeedSource):
    """Anything with __len__ and __getitem__: items are fetched in threads, and put together by collate."""

    def __init__(self, items: Any, batch_size: int, shuffle: bool, threads: int, collate: Collate | None):
        super().__init__()
        self.items, self.batch_size, self.shuffle = items, batch_size, shuffle
        self.threads, self.collate = threads, collate or stack
        self.entries = len(items)
        if not self.entries:
            raise DataError("the data set has no items")
        self.batches = max(1, self.entries // batch_size)
        self.names, arrays = named_arrays(self.collate([items[0]] * batch_size))
        self.shapes = [a.shape for a in arrays]

    def open(self, seed: tuple[int, ...], layer: Layer) -> Reader:
        return _ItemReader(self, Order(self.entries or 0, self.shuffle, seed, layer.name), _ranks(layer))


class _ItemReader(Reader):
    def __init__(self, source: ItemSource, order: Order, ranks: tuple[int, int]):
        places = Places("the data set", source.entries or 0, source.batch_size, *ranks)
        items, collate, arrays_of = source.items, source.collate, source.arrays_of

        def fill(places: range, batch: Batch) -> None:
            found = collate([items[int(row)] for row in order.rows(places)])
            batch.arrays = arrays_of(found)  # type: ignore[attr-defined]

        self._prefetcher = Prefetcher(
            places, fill, source.batch_size, prefetch=2 + source.threads, threads=source.threads
        )

    @property
    def position(self) -> int:  # type: ignore[override]
        return self._prefetcher.position

    def seek(self, position: int) -> None:
        self._prefetcher.seek(position)

    def next(self) -> Arrays:
        batch = self._prefetcher.next_batch()
        arrays = batch.arrays  # type: ignore[attr-defined]
        self._prefetcher.release(batch)
        return arrays

    def close(self) -> None:
        self._prefetcher.close()


class BatchSource(FeedSource):
    """An iterable of batches, or a function that returns an iterator of them; begun again when it ends."""

    def __init__(self, batches: Iterable[Any] | Callable[[], Iterable[Any]]):
        super().__init__()
        self._batches = batches
        self._once = batches if isinstance(batches, Iterator) else None
        self._taken = False
        self._first: Any = None
        iterator = self._begin()
        try:
            self._first = next(iterator)
        except StopIteration:
            raise DataError("the iterator gives no batch") from None
        self.names, arrays = named_arrays(self._first)
        self.shapes = [a.shape for a in arrays]
        self._head: Iterator[Any] | None = iterator if self._once is not None else None
        if isinstance(batches, Sequence):
            self.batches = len(batches)

    def _begin(self) -> Iterator[Any]:
        batches = self._batches
        return iter(batches() if callable(batches) else batches)

    def open(self, seed: tuple[int, ...], layer: Layer) -> Reader:
        return _BatchReader(self)

    def begin(self) -> Iterator[Any]:
        """An iterator from the first batch on. An iterator that cannot begin again serves one net only."""
        if self._once is None:
            return self._begin()
        if self._taken:
            raise DataError(
                "an iterator can be read once, and this one has ended or serves another net: give a function "
                "that returns a new iterator, or an iterable that can begin again"
            )
        self._taken = True
        return self._from_first()

    def _from_first(self) -> Iterator[Any]:
        yield self._first
        assert self._head is not None
        yield from self._head


class _BatchReader(Reader):
    def __init__(self, source: BatchSource):
        self._source = source
        self._iterator: Iterator[Any] | None = None

    def seek(self, position: int) -> None:
        self._iterator, self.position = None, 0
        for _ in range(position):
            self.next()

    def next(self) -> Arrays:
        fresh = self._iterator is None
        if self._iterator is None:
            self._iterator = self._source.begin()
        try:
            batch = next(self._iterator)
        except StopIteration:
            if fresh:
                raise DataError("the iterator gives no batch") from None
            self._iterator = None
            return self.next()
        self.position += 1
        return self._source.arrays_of(batch)


def stack(items: list[Any]) -> Any:
    """The usual collate: tuples, dicts or arrays of items -> of batches."""
    first = items[0]
    if isinstance(first, Mapping):
        return {key: np.stack([np.asarray(item[key]) for item in items]) for key in first}
    if isinstance(first, (tuple, list)):
        return tuple(np.stack([np.asarray(x) for x in column]) for column in zip(*items, strict=True))
    return np.stack([np.asarray(item) for item in items])


def named_arrays(batch: Any) -> tuple[list[str], list[np.ndarray]]:
    """A batch as arrays, with the names that a dict gives them ([] without)."""
    names: list[str] = []
    if isinstance(batch, Mapping):
        names, values = [str(key) for key in batch], list(batch.values())
    else:
        values = list(batch) if isinstance(batch, (tuple, list)) else [batch]
    arrays = [np.asarray(value) for value in values]
    for array in arrays:
        if array.dtype.kind not in "fiub":
            raise DataError(f"a batch must be made of arrays of numbers, not of {array.dtype}")
    return names, arrays
