"""Data, ImageData and WindowData: the next batch comes to the device while this one is worked on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from ...prefetch import Batch
from .base import CudaKernel
from .place import Upload


class DataKernel(CudaKernel):
    """The layer's batches go to the tops' memory on the device; the host gets one if somebody asks.

    Where the reader has the next batch ready, its copy begins at once, into memory for a second one.
    """

    _batch: Batch | None = None  # the one that has been sent ahead
    _upload: Upload | None = None

    def __init__(self, layer: Any, propagate_down: Sequence[bool] = ()):
        super().__init__(layer, propagate_down)
        layer.read_ahead()

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        batch = self.layer.take(bottom, top)
        upload = self._upload if self._batch is batch else None
        self._batch = self._upload = None
        try:
            if upload is None:  # it was not ready then, or the reader has been sent to another place since
                upload = self._begin(batch, len(top))
            upload.give([blob.data_mem for blob in top])
        finally:
            self.layer.give_back(batch)
        ahead = self.layer.peek()
        if ahead is not None:
            self._batch, self._upload = ahead, self._begin(ahead, len(top))

    @staticmethod
    def _begin(batch: Batch, tops: int) -> Upload:
        return Upload([batch.data.reshape(-1), batch.labels][:tops])


@kernel("Data", engine="cuda")
class DataLayerKernel(DataKernel):
    pass


@kernel("ImageData", engine="cuda")
class ImageDataKernel(DataKernel):
    pass


@kernel("WindowData", engine="cuda")
class WindowDataKernel(DataKernel):
    pass
