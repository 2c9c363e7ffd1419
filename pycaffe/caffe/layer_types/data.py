"""Data: batches out of a database."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from ..blob import Blob
from ..data_reader import DataReader, Record, Records
from ..data_transformer import DataTransformer
from ..datasets import resolve_source
from ..datum import Datum, DatumParser
from ..db.base import Piece
from ..errors import DataError
from ..layer_registry import register_layer
from ..prefetch import Batch
from ..proto import caffe_pb2
from ._prefetching import Draws, PrefetchingLayer

log = logging.getLogger("caffe.data")

_LONGEST_ROW = 1 << 16  # bytes of a record that is read together with others


@register_layer("Data")
class DataLayer(PrefetchingLayer):
    """top[0][n] = transformed image, top[1][n] = label of the next records of a database.

    top[0]: (N, C, H, W) or, with crop_size, (N, C, crop_size, crop_size). top[1], optional: (N,)
    integers. Images of one batch must agree in size; the next batch may have another one.

    data_param.source      directory of the database, or dataset://NAME/PART for an embedded one
    data_param.backend     LEVELDB (default) or LMDB
    data_param.batch_size  N, at least 1
    data_param.rand_skip   leave out up to this many records at the start, at random (default 0)
    data_param.prefetch    batches read ahead (default 4), which bounds the memory. On a CPU, small raw images
                           out of an LMDB are not: a thread takes more of the net's time than making them does
    transform_param        see DataTransformer

    Records come in the order of their keys, for ever. In TRAIN, rank r of R solvers reads records r, r + R,
    r + 2 R ... Random crops and mirrors depend on seed, layer name and place in the database alone.
    No gradient. Raises LayerError for impossible parameters, DataError for what is wrong with the database.
    Source: Caffe's DataLayer.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.data_param
        self.check_positive(param, "data_param", "batch_size", "prefetch")
        try:
            transformer = DataTransformer(self._transform_param(), self.phase)
            self._fill = _Fill(transformer, Draws(self.run.seed, self.name))
            self._reader = reader = DataReader(
                resolve_source(param.source),
                param.backend,
                param.batch_size,
                self._fill,
                prefetch=param.prefetch,
                skip=self.first_skip(param.rand_skip),
                **self.share(),
            )
            backend = caffe_pb2.DataParameter.DB.Name(param.backend).lower()
            log.info("Opened %s %s", backend, param.source)
            datum, self._shape = self._fill.look_at(reader.first_record(), param.batch_size)
            self.check_prefetch()
            self.log_size()
            if datum.encoded:  # decoding takes long, and lets other threads run
                reader.threads = self.run.threads
            elif transformer.is_small(len(datum.data)) and reader.regular(_LONGEST_ROW):
                reader.threads = 0  # to wait for the thread's turns would take longer than the work
        except DataError as error:
            raise self.named(error) from error

    def _transform_param(self) -> caffe_pb2.TransformationParameter:
        param = caffe_pb2.TransformationParameter()
        param.CopyFrom(self.layer_param.transform_param)
        if self.layer_param.data_param.force_encoded_color:  # the older name of force_color
            param.force_color = True
        return param

    def reseed(self) -> None:
        self._fill.draws = Draws(self.run.seed, self.name)


class _Fill:
    """Makes a batch of records; runs in the reader's threads and knows nothing of the layer."""

    def __init__(self, transformer: DataTransformer, draws: Draws):
        self.transformer, self.draws = transformer, draws
        self._parser = DatumParser()
        # Of the last batch made at once: by the number of each block, the block and what is in it.
        self._blocks: dict[int, tuple[np.ndarray, tuple[np.ndarray, np.ndarray] | None]] = {}

    def look_at(self, record: Record, batch_size: int) -> tuple[Datum, tuple[int, ...]]:
        """What a record holds, and (N, C, h, w) of a batch that begins with it."""
        key, value = record
        try:
            datum = self._parser.parse(value)
            image = self.transformer.image(datum)
            return datum, (batch_size, *self.transformer.output_shape(image.shape))
        except DataError as error:
            raise DataError(f"record {key!r}: {error}") from error

    def __call__(self, records: Records | Sequence[Record], batch: Batch) -> None:
        done = (
            isinstance(records, Records)
            and self.transformer.is_small(self._parser.size)
            and records.rows(_LONGEST_ROW, lambda pieces: self._all_at_once(pieces, batch))
        )
        if not done:
            self._one_by_one(records, batch)

    def _all_at_once(self, pieces: Sequence[Piece], batch: Batch) -> bool:
        """Make a batch of the values of its records, if all are small raw images such as have been before, so
        that there is nothing to say about them. Has it been made?"""
        before, transformer = self._blocks, self.transformer
        self._blocks = {
            id(block): before.get(id(block)) or (block, self._parser.images(block)) for block, _ in pieces
        }
        parts: list[tuple[np.ndarray, np.ndarray]] = []
        for block, chosen in pieces:
            known = self._blocks[id(block)][1]
            if known is None:
                return False
            parts.append((known[0][chosen], known[1][chosen]))
        shape = parts[0][0].shape[1:]
        if not transformer.fits(shape) or any(images.shape[1:] != shape for images, _ in parts):
            return False
        batch.reshape(transformer.output_shape(shape))
        words = self._words(batch)
        at = 0
        for images, labels in parts:
            place = slice(at, at + len(images))
            batch.labels[place] = labels
            transformer.transform_batch(images, batch.data[place], None if words is None else words[place])
            at = place.stop
        return True

    def _one_by_one(self, records: Iterable[Record], batch: Batch) -> None:
        transformer = self.transformer
        keys: list[bytes] = []

        def name(i: int) -> str:
            return f"record {keys[i]!r}"

        datums = self._datums(records, keys, batch.labels)
        known = [next(datums)]
        gathered = None
        if not known[0].encoded and transformer.is_small(len(known[0].data)):
            known += datums
            gathered = transformer.gather(known)
        images = iter(gathered) if gathered is not None else self._images(chain(known, datums), name)
        first = next(images)
        try:
            batch.reshape(transformer.output_shape(first.shape))
        except DataError as error:
            raise DataError(f"{name(0)}: {error}") from error
        all_images = chain([first], images) if gathered is None else gathered
        transformer.transform_batch(all_images, batch.data, self._words(batch), name)

    def _words(self, batch: Batch) -> np.ndarray | None:
        """The random words of a batch."""
        if not self.transformer.needs_random:
            return None
        return self.draws.words(batch.first, len(batch.labels), 3)

    def _datums(self, records: Iterable[Record], keys: list[bytes], labels: np.ndarray) -> Iterator[Datum]:
        """Each record, parsed when its turn comes; notes its key and label."""
        for i, (key, value) in enumerate(records):
            keys.append(key)
            try:
                datum = self._parser.parse(value)
            except DataError as error:
                raise DataError(f"record {key!r}: {error}") from error
            labels[i] = datum.label
            yield datum

    def _images(self, datums: Iterable[Datum], name: Callable[[int], str]) -> Iterator[np.ndarray]:
        """Each image, decoded when its turn comes."""
        for i, datum in enumerate(datums):
            try:
                image = self.transformer.image(datum)
            except DataError as error:
                raise DataError(f"{name(i)}: {error}") from error
            yield image
