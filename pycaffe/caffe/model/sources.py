"""m.data: what a net learns from, whatever it is kept in."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ..datasets import SCHEME, resolve_source
from ..db import detect_backend, open_db
from ..errors import DataError
from .feed import ArraySource, BatchSource, Collate, FeedSource, ItemSource
from .graph import LayerCall, ModelError, Top
from .model import Model
from .training import counted

_TOP_NAMES = ("data", "label")
_FEED = {"module": "caffe.model.feed", "layer": "Feed"}

Source = (
    str
    | os.PathLike[str]
    | np.ndarray
    | tuple[Any, ...]
    | Mapping[str, np.ndarray]
    | Iterable[Any]
    | Callable[[], Iterable[Any]]
)


def data(
    model: Model,
    source: Source,
    batch_size: int = 0,
    *,
    test: Source | None = None,
    test_batch_size: int = 0,
    scale: float = 1.0,
    mean: float | Sequence[float] = 0.0,
    crop_size: int = 0,
    mirror: bool = False,
    shuffle: bool = False,
    threads: int = 1,
    collate: Collate | None = None,
    tops: Sequence[str] = (),
    name: str = "",
) -> Any:
    """Batches of data: a tuple of tops, usually (data, label); one top where the source has only one.

    source: a folder with an LMDB or LevelDB, or dataset://digits/train; an .h5 file, or a .txt that lists
        some; arrays with the same number of rows: a tuple, or {top: array}; a data set with __len__ and
        __getitem__ (items: tuples, dicts, arrays); an iterable of batches, or a function that returns an
        iterator of them.
    test: the same for testing; without it, testing reads `source`, too.
    batch_size, test_batch_size: rows at a time; iterables have their own.
    scale, mean: (x - mean) · scale, of the first top. mean per channel, crop_size (random in training, the
        centre in testing) and mirror (at random) are for databases.
    shuffle: anew in each epoch, in an order that depends on seed and epoch alone; not for databases and
        iterables. A resumed training goes on where it stopped.
    threads, collate: of data sets: how many threads fetch items ahead, and what makes a batch of a list of
        items (default: np.stack).
    tops: names, in place of data and label or the source's own: as many as the source gives.
    Raises DataError for sources that cannot be read, ModelError for options that they do not have.
    """
    if isinstance(tops, str):
        raise ModelError(f"data: tops takes a list of names, not {tops!r}")
    if not any(map(_is_dataset, (source, test))) and (threads != 1 or collate is not None):
        raise ModelError("data: threads and collate are for data sets with __len__ and __getitem__")
    for batches, size, word in (
        (source, batch_size, "batch_size"),
        (test, test_batch_size, "test_batch_size"),
    ):
        if size and _is_iterable(batches):
            raise ModelError(f"data: {word} is not for iterables, which have batches of their own")
    counted("data: threads", threads, 1)
    transform = _Transform(scale, mean, crop_size, mirror)
    options = {"shuffle": shuffle, "threads": threads, "collate": collate, "tops": tops, "name": name}
    first = _add(model, source, batch_size, transform, None if test is None else "train", None, **options)
    if test is not None:
        size = test_batch_size or batch_size
        _add(model, test, size, transform, "test", first, **{**options, "shuffle": False})
    result = [transform.after(model, top) if i == 0 else top for i, top in enumerate(first.tops)]
    return result[0] if len(result) == 1 else tuple(result)


class _Transform:
    """What is done to the first top: by the layer that reads a database, else by one behind it."""

    def __init__(self, scale: float, mean: float | Sequence[float], crop_size: int, mirror: bool):
        try:
            self.scale, self.mean = float(scale), np.atleast_1d(np.asarray(mean, float)).tolist()
        except (TypeError, ValueError) as error:
            raise ModelError(
                f"data: scale and mean must be numbers, not {scale!r:.60} and {mean!r:.60}"
            ) from error
        self.crop_size, self.mirror = crop_size, mirror
        self._behind = False

    def field(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self.scale != 1:
            fields["scale"] = self.scale
        if any(self.mean):
            fields["mean_value"] = self.mean
        if self.crop_size:
            fields["crop_size"] = self.crop_size
        if self.mirror:
            fields["mirror"] = True
        return {"transform_param": fields} if fields else {}

    def by_a_layer(self, kind: str) -> None:
        if self.crop_size or self.mirror or len(self.mean) > 1:
            raise ModelError(
                f"data: crop_size, mirror and a mean per channel are for databases; {kind} are transformed "
                "before they are given"
            )
        self._behind = True

    def after(self, model: Model, top: Top) -> Top:
        if not self._behind or (self.scale == 1 and not any(self.mean)):
            return top
        params = {"scale": self.scale, "shift": -self.mean[0] * self.scale}
        return model.add_layer("Power", [top], params, base=f"{top.name}_scaled").tops[0]


def _add(
    model: Model,
    source: Any,
    batch_size: int,
    transform: _Transform,
    phase: str | None,
    like: LayerCall | None,
    *,
    shuffle: bool,
    threads: int,
    collate: Collate | None,
    tops: Sequence[str],
    name: str,
) -> LayerCall:
    def add(type: str, params: dict[str, Any], names: Sequence[str]) -> LayerCall:
        if type == "Python" and tops and len(tops) != len(names):
            raise ModelError(f"data: {len(names)} arrays need as many names, not tops={list(tops)}")
        names = list(tops or names)
        if like is not None and len(names) != len(like.tops):
            raise ModelError(
                f"data: the test source gives {len(names)} tops, the training's {len(like.tops)}"
            )
        if like is None:
            names = [model.top_name(n) for n in names]
        return model.add_layer(
            type, (), params, ntop=len(names), name=name if like is None else "", base="data",
            top_names=names, phase=phase, same_tops_as=like,
        )  # fmt: skip

    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        if path.endswith((".h5", ".hdf5")):
            source = _read_h5(path)
        elif path.endswith(".txt"):
            transform.by_a_layer("HDF5 files")
            names = tops or _names_in(path)
            param = {"source": path, "batch_size": _positive(batch_size), "shuffle": shuffle}
            call = add("HDF5Data", {"hdf5_data_param": param}, names)
            return call
        else:
            if shuffle:
                raise ModelError("data: shuffle is not for databases: shuffle when writing them")
            call = add("Data", _database(path, batch_size, transform), _TOP_NAMES)
            return call
    transform.by_a_layer("arrays, data sets and iterables")
    feed, names = _feed(source, batch_size, shuffle, threads, collate)
    call = add("Python", {"python_param": {**_FEED, "param_str": feed.key}}, names)
    model.feeds[feed.key] = feed
    return call


def _positive(batch_size: int) -> int:
    return counted("data: batch_size", batch_size, 1)


def _is_dataset(source: Any) -> bool:
    kept = isinstance(source, (str, bytes, os.PathLike, list, tuple, Mapping, np.ndarray))
    return not kept and hasattr(source, "__len__") and hasattr(source, "__getitem__")


def _is_iterable(source: Any) -> bool:
    kept = isinstance(source, (str, bytes, os.PathLike, tuple, Mapping, np.ndarray))
    return not kept and not _is_dataset(source) and (callable(source) or isinstance(source, Iterable))


def _database(path: str, batch_size: int, transform: _Transform) -> dict[str, Any]:
    backend = "lmdb" if path.startswith(SCHEME) else detect_backend(path)
    if path.startswith(SCHEME):
        resolve_source(path)  # refuses unknown ones here
    if backend is None:
        what = "is no database (LMDB or LevelDB)" if Path(path).exists() else "does not exist"
        raise DataError(f"data: '{path}' {what}; other sources are .h5 and .txt files, and what Python holds")
    param = {"source": path, "backend": backend.upper(), "batch_size": _positive(batch_size)}
    return {"data_param": param, **transform.field()}


def count_batches(call: LayerCall, feeds: Mapping[str, FeedSource]) -> int | None:
    """How many batches a layer's data have; None for what is no data layer, or where nobody knows."""
    if call.type == "Data":
        param = call.definition.data_param
        path = resolve_source(param.source)
        with open_db(path, param.backend) as db:
            return max(1, (db.entries or 0) // param.batch_size)
    feed = feeds.get(call.definition.python_param.param_str)
    return feed.batches if feed is not None else None


def _names_in(path: str) -> list[str]:
    """The datasets of the first file of a list, the usual two first."""
    try:
        first = next(line.strip() for line in Path(path).read_text().splitlines() if line.strip())
    except (OSError, StopIteration) as error:
        raise DataError(f"data: '{path}' lists no HDF5 file that can be read ({error!r})") from error
    return list(_read_h5(first, values=False))


def _read_h5(path: str, values: bool = True) -> dict[str, Any]:
    try:
        with h5py.File(path, "r") as file:
            found = [n for n in file if isinstance(file[n], h5py.Dataset)]
            order = [*(n for n in _TOP_NAMES if n in found), *(n for n in found if n not in _TOP_NAMES)]
            if not order:
                raise DataError(f"data: '{path}' holds no datasets")
            return {n: file[n][()] if values else None for n in order}  # type: ignore[index]
    except OSError as error:
        raise DataError(f"data: '{path}' cannot be read: {error}") from error


def _feed(
    source: Any, batch_size: int, shuffle: bool, threads: int, collate: Collate | None
) -> tuple[FeedSource, Sequence[str]]:
    arrays = _arrays(source)
    if arrays is not None:
        return ArraySource(arrays, _positive(batch_size), shuffle), list(arrays)
    if _is_dataset(source):
        items = ItemSource(source, _positive(batch_size), shuffle, threads, collate)
        return items, items.names or _usual_names(len(items.shapes))
    if _is_iterable(source):
        if shuffle:
            raise ModelError("data: shuffle is not for iterables, which have their own order")
        batches = BatchSource(source)  # type: ignore[arg-type]
        return batches, batches.names or _usual_names(len(batches.shapes))
    raise ModelError(f"data: a source cannot be {type(source).__name__}")


def _usual_names(count: int) -> Sequence[str]:
    return _TOP_NAMES[:count] if count <= 2 else [f"data{i}" for i in range(count)]


def _array(rows: Any) -> np.ndarray:
    try:
        return np.asarray(rows)
    except ValueError as error:
        raise DataError(f"data: rows of different lengths are no array: {error}") from error


def _arrays(source: Any) -> dict[str, np.ndarray] | None:
    """Arrays of rows; None for what is something else. Raises DataError when they do not go together."""
    if isinstance(source, np.ndarray):
        source = (source,)
    if isinstance(source, Mapping):
        arrays = {str(key): _array(value) for key, value in source.items()}
    elif isinstance(source, tuple) and source:
        arrays = dict(zip(_usual_names(len(source)), map(_array, source), strict=True))
    else:
        return None
    shapes = ", ".join(f"{name} {a.shape}" for name, a in arrays.items())
    if len({a.shape[:1] for a in arrays.values()}) != 1 or not all(
        a.ndim and len(a) for a in arrays.values()
    ):
        raise DataError(f"data: arrays must have the same number of rows, 1 or more: {shapes}")
    if any(a.dtype.kind not in "fiub" for a in arrays.values()):
        raise DataError(f"data: arrays of numbers are wanted: {[str(a.dtype) for a in arrays.values()]}")
    return arrays
