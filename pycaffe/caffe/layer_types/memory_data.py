"""MemoryData: batches out of arrays that the program hands over."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..blob import Blob
from ..errors import DataError
from ..layer import Layer
from ..layer_registry import register_layer

log = logging.getLogger("caffe.data")


@register_layer("MemoryData")
class MemoryDataLayer(Layer):
    """top[0] = the next batch_size images, top[1] = their labels, of arrays given to set_arrays, for ever.

    top[0]: (N, C, H, W). top[1]: (N,) after set-up and (N, 1, 1, 1) after forward, as in the original.

    memory_data_param.batch_size, channels, height, width   N, C, H, W; all compulsory and positive
    transform_param   not applied to arrays (a warning says so), as in the original

    No gradient. Raises LayerError for a missing size, DataError for arrays that do not fit, and for a forward
    pass before there are any. Source: Caffe's MemoryDataLayer.
    """

    exact_num_bottom = 0
    exact_num_top = 2

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.memory_data_param
        self._shape = (param.batch_size, param.channels, param.height, param.width)
        if not all(self._shape):
            raise self.error(
                "batch_size, channels, height, and width must be specified and positive in "
                f"memory_data_param; they are {', '.join(map(str, self._shape))}"
            )
        self._data: np.ndarray | None = None
        self._labels = np.zeros(0, np.float32)
        self._position = self._first = 0  # of the next batch; of the first batch of the next arrays
        top[1].reshape(param.batch_size)

    @property
    def batch_size(self) -> int:
        return self._shape[0]

    def set_arrays(self, data: np.ndarray, labels: np.ndarray) -> None:
        """Read from these arrays from now on, beginning with the first image.

        data: (n, C, H, W), n a multiple of N. labels: (n,) or (n, 1, 1, 1). Numbers of any type. The arrays
        are kept, not copied: what is written into them later is seen by later forward passes.
        Raises DataError.
        """
        wanted = self._shape[1:]
        for name, array in (("data", data), ("labels", labels)):
            if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
                raise self._fault(f"{name} must be a NumPy array of numbers, not {_kind(array)}")
        if data.shape[1:] != wanted:
            raise self._fault(
                f"data must have the shape (n, {', '.join(map(str, wanted))}), as memory_data_param says, "
                f"not {data.shape}"
            )
        count = len(data)
        if labels.shape not in ((count,), (count, 1, 1, 1)):
            raise self._fault(
                f"data and labels must have the same first dimension: data has {count} images; labels must "
                f"have the shape ({count},) or ({count}, 1, 1, 1), not {labels.shape}"
            )
        if not count or count % self.batch_size:
            raise self._fault(
                f"first dimensions of input arrays must be a multiple of batch size: {count} images, "
                f"batch_size {self.batch_size}"
            )
        if self.layer_param.HasField("transform_param"):
            log.warning("layer '%s': MemoryData does not transform array data", self.name)
        self._data, self._labels = data, labels
        self._position, self._first = self._first, 0

    def _fault(self, message: str) -> DataError:
        return DataError(f"layer '{self.name}' (MemoryData): {message}")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape(self._shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self._data is None:
            raise self._fault(
                "MemoryDataLayer needs to be initialized: call net.set_input_arrays(data, labels) before "
                "forward"
            )
        start = self._position % len(self._data)
        stop = start + self.batch_size
        np.copyto(top[0].overwrite_cpu_data(), self._data[start:stop], casting="unsafe")
        top[1].reshape(self.batch_size, 1, 1, 1)
        np.copyto(top[1].overwrite_cpu_data().ravel(), self._labels[start:stop].ravel(), casting="unsafe")
        self._position = stop % len(self._data)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """There is nothing below."""

    def save_state(self) -> dict[str, Any]:
        return {"position": self._position}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """The program hands the arrays over itself, before this or after it."""
        self._position = state["position"]
        if self._data is None:
            self._first = self._position


def _kind(array: object) -> str:
    return f"one of {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
