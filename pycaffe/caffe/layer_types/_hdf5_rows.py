"""The rows of one HDF5 file: equally long datasets, read in blocks as float32."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
from collections.abc import Iterator, Sequence

import h5py
import numpy as np

from ..errors import DataError

log = logging.getLogger("caffe.data")

# Bytes of one dataset that are kept in memory: files may be larger than it.
_BLOCK = 2**24

# What h5py raises for damaged files, depending on where the damage is.
_FAULTS = (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError, OverflowError)

_CLASSES = {"f": "H5T_FLOAT", "i": "H5T_INTEGER", "u": "H5T_INTEGER"}


class Hdf5Rows:
    """names: the datasets. rows: how many each has. shapes: of one row, per dataset.

    whole: keep all of the file in memory. order: the order in which rows are taken, for shuffling; only
    where the file is kept whole. The file is open only while a block is read, the first one at once, so that
    others may rewrite it later.
    Raises DataError, naming the file and the dataset.
    """

    def __init__(self, path: str, names: Sequence[str], whole: bool = False):
        self.path, self._names, self._whole = path, names, whole
        self.order: np.ndarray | None = None
        self._start = self._stop = 0
        self._blocks: list[np.ndarray] = []
        with self._reading() as file:
            sets = [self._dataset(file, name) for name in names]
            counts = [s.shape[0] for s in sets]
            self.shapes = [tuple(s.shape[1:]) for s in sets]
            self.rows: int = counts[0]
            if min(counts) != max(counts) or not self.rows:
                text = ", ".join(f"{name}: {n}" for name, n in zip(names, counts, strict=True))
                raise DataError(f"{path}: its datasets must have equally many rows, at least one, not {text}")
            self._fill(sets, 0)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[h5py.File]:
        """The file, open for as long as the block lasts."""
        if not os.path.isfile(self.path):
            raise DataError(
                f"Failed opening HDF5 file: {self.path}: there is no such file. Paths in the list start at "
                f"the working directory, {os.getcwd()}"
            )
        try:
            file = h5py.File(self.path, "r")
        except _FAULTS as error:
            raise DataError(f"Failed opening HDF5 file: {self.path}: {error}") from error
        try:
            with file:
                yield file
        except _FAULTS as error:
            raise DataError(f"{self.path}: it cannot be read, it may be damaged: {error}") from error

    def _dataset(self, file: h5py.File, name: str) -> h5py.Dataset:
        found = file.get(name)
        if not isinstance(found, h5py.Dataset):
            names: list[str] = []
            file.visititems(lambda n, x: names.append(n) if isinstance(x, h5py.Dataset) else None)
            raise DataError(
                f"{self.path}: Failed to find HDF5 dataset {name}; tops are datasets by name (there are: "
                f"{', '.join(names) or 'none'})"
            )
        kind = _CLASSES.get(found.dtype.kind)
        if kind is None:
            raise DataError(
                f"{self.path}: Unsupported datatype class of dataset {name}: {found.dtype}; write it as "
                "float or integer"
            )
        if not found.shape:
            raise DataError(f"{self.path}: dataset {name} is one number; its first axis must count the rows")
        _say_class(kind)
        return found

    def read(self, rows: range, out: Sequence[np.ndarray]) -> None:
        """Write these rows (of the order, if there is one) to the beginning of each array of out."""
        start, stop, step = rows.start, rows.stop, rows.step
        done = 0
        while start < stop:
            if not self._start <= start < self._stop:
                self._load(start)
            end = min(stop, self._stop)
            count = len(range(start, end, step))
            for target, block in zip(out, self._blocks, strict=True):
                if self.order is None:
                    target[done : done + count] = block[start - self._start : end - self._start : step]
                else:
                    target[done : done + count] = block[self.order[start:end:step]]
            done += count
            start += count * step

    def _load(self, row: int) -> None:
        with self._reading() as file:
            sets = [self._dataset(file, name) for name in self._names]
            for name, shape, dataset in zip(self._names, self.shapes, sets, strict=True):
                if dataset.shape != (self.rows, *shape):
                    now = f"{dataset.shape}, it was {(self.rows, *shape)}"
                    raise DataError(
                        f"{self.path}: dataset {name} has another shape since it was opened: {now}"
                    )
            self._fill(sets, row)

    def _fill(self, sets: Sequence[h5py.Dataset], row: int) -> None:
        """Read the block that has this row."""
        rows = self.rows
        if not self._whole:
            widest = max(math.prod(shape) for shape in self.shapes)
            rows = min(rows, max(1, _BLOCK // (4 * max(1, widest))))
        start = row - row % rows
        stop = min(self.rows, start + rows)
        self._start = self._stop = 0
        if not self._blocks:
            self._blocks = [np.empty((rows, *shape), np.float32) for shape in self.shapes]
        for name, dataset, block in zip(self._names, sets, self._blocks, strict=True):
            try:
                dataset.read_direct(block, np.s_[start:stop], np.s_[: stop - start])
            except _FAULTS as error:
                raise DataError(f"{self.path}: dataset {name} cannot be read: {error}") from error
        self._start, self._stop = start, stop


@functools.cache
def _say_class(kind: str) -> None:
    """Once per process and class, as the original does."""
    log.info("Datatype class: %s", kind)
