"""Data: batches out of a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..blob import Blob
from ..data_reader import DataReader, Record
from ..data_transformer import DataTransformer
from ..datasets import resolve_source
from ..datum import Datum, DatumParser
from ..errors import DataError
from ..layer_registry import register_layer
from ..prefetch import Batch
from ._prefetching import Draws, PrefetchingLayer


@register_layer("Data")
class DataLayer(PrefetchingLayer):
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

    _reader: DataReader

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.data_param
        self.check_positive(param, "data_param", "batch_size", "prefetch")
        try:
            transformer = DataTransformer(self.layer_param.transform_param, self.phase)
            self._fill = _Fill(transformer, Draws(self.run.seed, self.name))
            self._reader = DataReader(
                resolve_source(param.source),
                param.backend,
                param.batch_size,
                self._fill,
                prefetch=param.prefetch,
                skip=self.first_skip(param.rand_skip),
                **self.share(),
            )
            datum, self._shape = self._fill.look_at(self._reader.first_record(), param.batch_size)
            if datum.encoded:  # decoding takes long, and lets other threads run
                self._reader.threads = self.run.threads
        except DataError as error:
            raise self.named(error) from error

    def reseed(self) -> None:
        self._fill.draws = Draws(self.run.seed, self.name)

    @property
    def entries(self) -> int | None:
        return self._reader.entries


class _Fill:
    """Makes a batch of records; runs in the reader's threads and knows nothing of the layer."""

    def __init__(self, transformer: DataTransformer, draws: Draws):
        self.transformer, self.draws = transformer, draws
        self._parser = DatumParser()

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
        datums: list[Datum] = []
        try:
            for _, value in records:
                datums.append(parse(value))
        except DataError as error:
            raise DataError(f"{name(len(datums))}: {error}") from error
        images = transformer.gather(datums)
        try:
            first = transformer.image(datums[0]) if images is None else images[0]
            batch.reshape(transformer.output_shape(first.shape))
        except DataError as error:
            raise DataError(f"{name(0)}: {error}") from error
        words = self.draws.words(batch.first, len(records), 3) if transformer.needs_random else None
        if images is None:
            transformer.transform_batch(self._images(first, datums, name), batch.data, words, name)
        else:
            transformer.transform_batch(images, batch.data, words, name)
        batch.labels[:] = [d.label for d in datums]

    def _images(
        self, first: np.ndarray, datums: list[Datum], name: Callable[[int], str]
    ) -> Iterator[np.ndarray]:
        """Each image, decoded when its turn comes."""
        yield first
        for i, datum in enumerate(datums[1:], 1):
            try:
                image = self.transformer.image(datum)
            except DataError as error:
                raise DataError(f"{name(i)}: {error}") from error
            yield image
