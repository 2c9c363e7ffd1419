"""HDF5Output: two blobs written to an HDF5 file."""

from __future__ import annotations

import os
from collections.abc import Sequence

import h5py
import numpy as np

from ..blob import Blob
from ..errors import DataError, ShapeError
from ..layer import Layer
from ..layer_registry import register_layer

_NAMES = ("data", "label")
_CHUNK = 2**20  # bytes


@register_layer("HDF5Output")
class HDF5OutputLayer(Layer):
    """file["data"], file["label"] = bottom[0], bottom[1] of all forward passes, one below the other.

    bottom[0], bottom[1]: (N, …) with the same N, any shape. Datasets are float32; a bottom of fewer than four
    axes is written with ones behind, as in the original. No tops.

    hdf5_output_param.file_name   compulsory; an existing file is replaced by the first forward pass

    After each pass the file is closed, so that it is whole at any time. (The original could not run a second
    pass.) No gradient. Raises LayerError without a file name, ShapeError for bottoms of different length,
    DataError when the file cannot be written or a later pass brings another shape.
    Source: Caffe's HDF5OutputLayer.
    """

    exact_num_bottom = 2
    exact_num_top = 0

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._path: str = self.layer_param.hdf5_output_param.file_name
        if not self._path:
            raise self.error("hdf5_output_param.file_name must be given")
        folder = os.path.dirname(self._path) or "."
        if not os.path.isdir(folder):
            raise self._fault(f"the folder '{folder}' does not exist")
        if os.path.isdir(self._path) or not os.access(folder, os.W_OK):
            raise self._fault("it is a folder, or lies in one that cannot be written to")
        self._begun = False

    def _fault(self, reason: object) -> DataError:
        return DataError(f"layer '{self.name}' (HDF5Output): cannot write '{self._path}': {reason}")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        counts = [blob.shape[0] if blob.shape else 1 for blob in bottom]
        if counts[0] != counts[1]:
            raise self.error(
                f"both bottoms must have the same number of items: shapes {bottom[0].shape} and "
                f"{bottom[1].shape}",
                ShapeError,
            )

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        try:
            with h5py.File(self._path, "r+" if self._begun else "w") as file:
                for name, blob in zip(_NAMES, bottom, strict=True):
                    values = blob.cpu_data()
                    values = values.reshape(values.shape + (1,) * (4 - values.ndim))
                    if self._begun:
                        self._append(file[name], values)
                    else:
                        _create(file, name, values)
        except (
            OSError,
            RuntimeError,
            KeyError,
            ValueError,
        ) as error:  # h5py tells failures in all these ways
            raise self._fault(error) from error
        self._begun = True

    def _append(self, dataset: h5py.Dataset, values: np.ndarray) -> None:
        if dataset.shape[1:] != values.shape[1:]:
            raise self._fault(
                f"earlier passes wrote rows of shape {dataset.shape[1:]} to {dataset.name}, this one brings "
                f"{values.shape[1:]}"
            )
        start = len(dataset)
        dataset.resize(start + len(values), axis=0)
        dataset[start:] = values

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Nothing flows back from a file."""


def _create(file: h5py.File, name: str, values: np.ndarray) -> None:
    """A dataset that may grow. Its chunks are about a megabyte, or one batch."""
    row = max(1, values[:1].nbytes)
    chunks = (max(1, min(len(values), _CHUNK // row)), *(max(1, n) for n in values.shape[1:]))
    file.create_dataset(
        name, data=values, dtype=np.float32, maxshape=(None, *values.shape[1:]), chunks=chunks
    )
