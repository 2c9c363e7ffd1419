"""Data: batches out of a database."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..blob import Blob
from ..context import solver_count, solver_rank
from ..data_reader import Batch, DataReader, Record
from ..data_transformer import DataTransformer
from ..datasets import resolve_source
from ..datum import Datum, DatumParser
from ..errors import DataError
from ..layer import Layer
from ..layer_registry import register_layer
from ..proto import caffe_pb2
from ..random_streams import Stream


@register_layer("Data")
class DataLayer(Layer):
    """top[0][n] = transformed image, top[1][n] = label of the next records of a database.

    top[0]: (N, C, H, W) or, with crop_size, (N, C, crop_size, crop_size). top[1], optional: (N,)
    integers. Images of one batch must agree in size; the next batch may have another one.

    data_param.source      directory of the database, or dataset://NAME/PART for an embedded one
    data_param.backend     LEVELDB (default) or LMDB
    data_param.batch_size  N, at least 1
    data_param.rand_skip   leave out up to this many records at the start, at random (default 0)
    data_param.prefetch    batches read ahead (default 4), which bounds the memory
    transform_param        see DataTransformer

    Records come in the order of their keys, for ever. In TRAIN, rank r of R solvers reads records r, r + R,
    r + 2 R ... Random crops and mirrors depend on seed, layer name and place in the database alone.
    No gradient. Raises LayerError for impossible parameters, DataError for what is wrong with the database.
    Source: Caffe's DataLayer.
    """

    exact_num_bottom = 0
    min_top = 1
    max_top = 2

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.data_param
        for field in ("batch_size", "prefetch"):
            if not getattr(param, field):
                raise self.error(f"data_param.{field} must be positive, not 0")
        try:
            transformer = DataTransformer(self.layer_param.transform_param, self.phase)
            self._fill = _Fill(transformer, Stream(self.run.seed, self.name))
            self._reader = DataReader(
                resolve_source(param.source),
                param.backend,
                param.batch_size,
                self._fill,
                prefetch=param.prefetch,
                skip=self._first_skip(param.rand_skip),
                **self._share(),
            )
            datum, self._shape = self._fill.look_at(self._reader.first_record(), param.batch_size)
            if datum.encoded:  # decoding takes long, and lets other threads run
                self._reader.threads = self.run.threads
        except DataError as error:
            raise self._named(error) from error

    def _first_skip(self, rand_skip: int) -> int:
        if not rand_skip:
            return 0
        return int(Stream(self.run.seed, f"{self.name}/rand_skip").generator().integers(rand_skip))

    def _share(self) -> dict[str, int]:
        if self.phase == caffe_pb2.TEST:  # every rank tests on all of it
            return {}
        return {"rank": solver_rank(), "num_ranks": solver_count()}

    def _named(self, error: DataError) -> DataError:
        return DataError(f"layer '{self.name}' ({self.type}): {error}")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape(self._shape)
        if len(top) > 1:
            top[1].reshape(self._shape[0])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        try:
            batch = self._reader.next_batch()
        except DataError as error:
            raise self._named(error) from error
        if batch.data.shape != self._shape:
            self._shape = batch.data.shape
            self.reshape(bottom, top)
        np.copyto(top[0].overwrite_cpu_data(), batch.data)
        if len(top) > 1:
            np.copyto(top[1].overwrite_cpu_data(), batch.labels)
        self._reader.release(batch)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """There is nothing below."""

    @property
    def position(self) -> int:
        """The place in the endless stream of records after the last batch that forward gave."""
        return self._reader.position

    def seek(self, position: int) -> None:
        """Go on from this place, with the random numbers of the net's present seed."""
        self._reader.seek(position)  # ends the threads, which draw from the stream
        self._fill.stream = Stream(self.run.seed, self.name)

    def save_state(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.seek(state["position"])

    def save_state(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.seek(state["position"])

    def close(self) -> None:
        """End the reader's threads now, instead of with the net."""
        self._reader.close()


class _Fill:
    """Makes a batch of records; runs in the reader's threads and knows nothing of the layer."""

    def __init__(self, transformer: DataTransformer, stream: Stream):
        self.transformer, self.stream = transformer, stream
        self._parser = DatumParser()
        self._drawing = threading.Lock()  # a stream serves one thread at a time

    def look_at(self, record: Record, batch_size: int) -> tuple[Datum, tuple[int, ...]]:
        """What a record holds, and (N, C, h, w) of a batch that begins with it."""
        key, value = record
        try:
            datum = self._parser.parse(value)
            image = self.transformer.image(datum)
            return datum, (batch_size, *self.transformer.output_shape(image.shape))
        except DataError as error:
            raise DataError(f"record {key!r}: {error}") from error

    def __call__(self, records: list[Record], batch: Batch) -> None:
        def name(i: int) -> str:
            return f"record {records[i][0]!r}"

        transformer, parse = self.transformer, self._parser.parse
        datums = []
        try:
            for _, value in records:
                datums.append(parse(value))
        except DataError as error:
            raise DataError(f"{name(len(datums))}: {error}") from error
        images = transformer.gather(datums, name)
        try:
            batch.reshape(transformer.output_shape(images[0].shape))
        except DataError as error:
            raise DataError(f"{name(0)}: {error}") from error
        words = None
        if transformer.needs_random:
            with self._drawing:
                words = self.stream.bits32(3 * len(records), batch.first).reshape(-1, 3)
        transformer.transform_batch(images, batch.data, words, name)
        batch.labels[:] = [d.label for d in datums]
