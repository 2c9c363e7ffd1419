"""What layers have in common that read batches ahead: Data, ImageData, WindowData."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..blob import Blob
from ..errors import DataError
from ..execution import memory_limit, memory_text
from ..layer import Layer
from ..prefetch import Batch, Prefetcher
from ..random_streams import Stream
from ._ranks import common_seed, share

log = logging.getLogger("caffe.data")

_OBJECT = 1 << 10  # bytes that a batch takes besides its data


class PrefetchingLayer(Layer):
    """A data layer whose setup makes `_reader` and `_shape`, the shape of the first top.

    Batches may differ in shape; the tops follow. What a batch holds depends on the net's seed, the layer's
    name and the place in the stream alone.
    """

    exact_num_bottom = 0
    min_top = 1
    max_top = 2

    _reader: Prefetcher
    _shape: tuple[int, ...]
    _epoch: int | None = 0  # of the last batch; None where the next one may be of any

    def check_positive(self, param: Any, param_name: str, *fields: str) -> None:
        """Raises LayerError for a field of 0."""
        for field in fields:
            if not getattr(param, field):
                raise self.error(f"{param_name}.{field} must be positive, not 0")

    def first_skip(self, rand_skip: int) -> int:
        """How many items to leave out at the start: below rand_skip, at random."""
        if not rand_skip:
            return 0
        return int(
            Stream(common_seed(self.run.seed), f"{self.name}/rand_skip").generator().integers(rand_skip)
        )

    def share(self) -> dict[str, int]:
        """rank and num_ranks for the reader."""
        return dict(zip(("rank", "num_ranks"), share(self.phase), strict=True))

    def named(self, error: DataError) -> DataError:
        return DataError(f"layer '{self.name}' ({self.type}): {error}")

    def check_prefetch(self) -> None:
        """Raises LayerError where the batches that may be read ahead need more memory than there is."""
        prefetch, each = self.layer_param.data_param.prefetch, 4 * math.prod(self._shape) + _OBJECT
        limit = memory_limit()
        if each <= limit < prefetch * each:  # one that is too large itself, the net refuses
            raise self.error(
                f"data_param.prefetch (={prefetch}): so many batches of {memory_text(each)} need "
                f"{memory_text(prefetch * each)} of memory; there are {memory_text(limit)}. A smaller "
                "prefetch or batch_size needs less"
            )

    def log_size(self) -> None:
        log.info("output data size: %s", ",".join(map(str, self._shape)))

    def reseed(self) -> None:
        """Take up the net's present seed; the reader's threads have ended."""
        raise NotImplementedError

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape(self._shape)
        if len(top) > 1:
            top[1].reshape(self._shape[0])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        batch = self.take(bottom, top)
        batch.give_data(top[0].data_mem)
        if len(top) > 1:
            np.copyto(top[1].overwrite_cpu_data(), batch.labels)
        self.give_back(batch)

    def take(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Batch:
        """The next batch, whose shapes the tops have now. It stays as it is until it is given back."""
        try:
            batch = self._reader.next_batch()
        except DataError as error:
            raise self.named(error) from error
        if batch.epoch != self._epoch:
            if self._epoch is not None:
                log.info("Restarting data prefetching from start.")
            self._epoch = batch.epoch
        if batch.data.shape != self._shape:
            self._shape = batch.data.shape
            self.reshape(bottom, top)
        return batch

    def give_back(self, batch: Batch) -> None:
        self._reader.release(batch)

    def read_ahead(self) -> None:
        """Let a thread make batches while the net runs, also those that are made faster without one: for a
        device that works on its own. To be called before the first batch."""
        self._reader.threads = max(1, self._reader.threads)

    def peek(self) -> Batch | None:
        """The batch that take() will give next, if it is ready: not to be changed, and not taken."""
        return self._reader.peek()

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """There is nothing below."""

    @property
    def position(self) -> int:
        """The place in the endless stream after the last batch that forward gave."""
        return self._reader.position

    @property
    def entries(self) -> int | None:
        """How many different items the stream repeats; None while that is not known."""
        return self._reader.entries

    @property
    def repeats(self) -> bool:
        """Has forward gone on past the end, to the first items again?"""
        entries = self.entries
        return entries is not None and self.position > entries

    def seek(self, position: int) -> None:
        """Go on from this place, with the random numbers of the net's present seed."""
        self._reader.seek(position)
        self._epoch = None
        self.reseed()

    def save_state(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.seek(state["position"])

    def close(self) -> None:
        """End the reader's threads now, instead of with the net."""
        self._reader.close()


class Draws:
    """Random words for places of the stream, for several threads."""

    def __init__(self, seed: tuple[int, ...], name: str):
        self._stream = Stream(seed, name)
        self._lock = threading.Lock()  # a stream serves one thread at a time

    def words(self, place: int, count: int, each: int) -> np.ndarray:
        """(count, each) uint32 for a batch that begins at this place."""
        with self._lock:
            return self._stream.bits32(count * each, place).reshape(count, each)
