"""HDF5Data: batches out of HDF5 files."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..blob import Blob
from ..errors import DataError
from ..layer import Layer
from ..layer_registry import register_layer
from ..random_streams import Stream
from ._hdf5_rows import Hdf5Rows
from ._ranks import common_seed, share

log = logging.getLogger("caffe.data")


@register_layer("HDF5Data")
class HDF5DataLayer(Layer):
    """top[i][n] = the next rows of the dataset that has the name of top i.

    top[i]: (N, …), with the shape of a row; floats and integers of any width become float32. All datasets of
    a file have equally many rows, and rows have the same shape in all files.

    hdf5_data_param.source      text file with the path of one HDF5 file per line
    hdf5_data_param.batch_size  N, at least 1
    hdf5_data_param.shuffle     shuffle the files and the rows within each, in every epoch (default false)

    Files follow each other without gaps, for ever. Without shuffle they are read in blocks and may be
    larger than memory; with it, one file at a time is in memory. In TRAIN, rank r of R solvers takes rows
    r, r + R, r + 2 R ... Data are not transformed. No gradient.
    Raises LayerError for impossible parameters, DataError, with the file, for what is wrong with it.
    Source: Caffe's HDF5DataLayer.
    """

    exact_num_bottom = 0
    min_top = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.hdf5_data_param
        if self.layer_param.HasField("transform_param"):
            raise self.error(
                f"{self.type} does not transform data. Leave out transform_param, and scale the numbers when "
                "writing the files or by a Power layer"
            )
        if not param.batch_size:
            raise self.error("hdf5_data_param.batch_size must be positive, not 0")
        self._names = list(self.layer_param.top)
        self._rank, self._ranks = share(self.phase)
        try:
            self._paths = _read_list(param.source)
            # slot: place in the shuffled list of files. row: in that file. wait: rows of other ranks to pass.
            self._epoch = self._slot = self._row = 0
            self._wait = self._rank
            self._file: Hdf5Rows | None = None
            self._shapes: list[tuple[int, ...]] = []
            self._shapes = self._open().shapes
        except DataError as error:
            raise self._named(error) from error

    def _named(self, error: DataError) -> DataError:
        return DataError(f"layer '{self.name}' ({self.type}): {error}")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for blob, shape in zip(top, self._shapes, strict=True):
            blob.reshape((self.layer_param.hdf5_data_param.batch_size, *shape))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        out = [blob.overwrite_cpu_data() for blob in top]
        size, done = len(out[0]), 0
        try:
            while done < size:
                file = self._file or self._open()
                first = self._row + self._wait
                count = min(size - done, len(range(first, file.rows, self._ranks)))
                if count:
                    file.read(range(first, file.rows, self._ranks)[:count], [array[done:] for array in out])
                    done += count
                    self._row = first + (count - 1) * self._ranks + 1
                    self._wait = self._ranks - 1
                else:
                    self._wait -= file.rows - self._row
                    self._row = file.rows
                if self._row == file.rows:
                    self._next_file(file)
                    del file  # its memory is needed for the next one
        except DataError as error:
            raise self._named(error) from error

    def _next_file(self, file: Hdf5Rows) -> None:
        self._row = 0
        self._slot += 1
        if self._slot == len(self._paths):
            self._slot = 0
            self._epoch += 1
        self._file = None if len(self._paths) > 1 else self._shuffled(file)

    def _open(self) -> Hdf5Rows:
        """The file of the present slot."""
        order = self._permutation(len(self._paths), 0)
        path = self._paths[self._slot if order is None else order[self._slot]]
        file = Hdf5Rows(path, self._names, whole=order is not None)
        if self._shapes and self._shapes != file.shapes:
            raise DataError(
                f"{path}: rows of {', '.join(self._names)} have the shapes {file.shapes}, those of the first "
                f"file {self._shapes}; all files must agree"
            )
        self._file = self._shuffled(file)
        return file

    def _shuffled(self, file: Hdf5Rows) -> Hdf5Rows:
        file.order = self._permutation(file.rows, 1 + self._slot)
        return file

    def _permutation(self, count: int, use: int) -> np.ndarray | None:
        """An order that depends on seed, epoch and use alone; None without shuffling."""
        if not self.layer_param.hdf5_data_param.shuffle:
            return None
        stream = Stream(common_seed(self.run.seed), f"{self.name}/shuffle")
        return stream.generator(self._epoch, use).permutation(count)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """There is nothing below."""

    @property
    def repeats(self) -> bool:
        """Has forward gone on past the last row, to the first rows again?"""
        return (self._epoch, self._slot, self._row) > (1, 0, 0)

    def save_state(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "slot": self._slot, "row": self._row, "wait": self._wait - self._rank}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._epoch, self._slot, self._row = state["epoch"], state["slot"], state["row"]
        self._wait = state["wait"] + self._rank
        try:
            if self._slot >= len(self._paths):
                raise DataError(f"there were {self._slot + 1} files or more, and now {len(self._paths)}")
            file = self._open()
            if self._row >= file.rows:
                raise DataError(f"{file.path}: training stopped at row {self._row}, and now it ends before")
        except DataError as error:
            raise self._named(error) from error


def _read_list(source: str) -> list[str]:
    log.info("Loading list of HDF5 filenames from: %s", source)
    try:
        with open(source, encoding="utf-8-sig", errors="surrogateescape") as file:
            paths = [line.strip() for line in file if line.strip()]
    except OSError as error:
        raise DataError(f"Failed to open source file: {source}: {error.strerror}") from error
    log.info("Number of HDF5 files: %d", len(paths))
    if not paths:
        raise DataError(f"Must have at least 1 HDF5 filename listed in {source}: it lists none")
    return paths
