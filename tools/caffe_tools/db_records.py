"""The records of a database one by one, with what is wrong with each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np

from caffe.datum import Datum, DatumParser, raw_image
from caffe.db import DB
from caffe.errors import DataError
from caffe.image import channels_first, decode

from .in_order import in_order


@dataclass(frozen=True)
class Record:
    """size: of the value, in bytes. datum, image: None where `fault` says why there is none. image: (C, H,
    W), decoded as it is stored, with 8 bits or more."""

    key: bytes
    size: int
    datum: Datum | None
    image: np.ndarray | None
    fault: str = ""

    @property
    def name(self) -> str:
        """The key as text."""
        return self.key.decode("utf-8", "backslashreplace")


def read_records(db: DB, limit: int | None = None) -> Iterator[Record]:
    """All records, or the first `limit`, in the order of their keys; encoded images are decoded by several
    threads. Raises DataError only where the database itself cannot be read on."""
    stream = islice(_parsed(db), limit)
    first = next(stream, None)
    if first is None:
        return
    if first.datum is not None and first.datum.encoded:
        for _, record in in_order(chain([first], stream), _with_image):
            yield record
    else:
        yield from map(_with_image, chain([first], stream))


def _with_image(record: Record) -> Record:
    datum = record.datum
    if datum is None:
        return record
    if not datum.encoded:
        return replace(record, image=raw_image(datum))
    try:
        return replace(record, image=channels_first(decode(datum.data, None)))
    except DataError as error:
        return replace(record, fault=f"Could not decode datum: {error}")


def _parsed(db: DB) -> Iterator[Record]:
    parser = DatumParser()
    cursor = db.cursor()
    while cursor.valid():
        key, size = cursor.key(), 0
        try:
            value = cursor.value()
            size = len(value)
            yield Record(key, size, parser.parse(value), None)
        except DataError as error:
            yield Record(key, size, None, None, str(error))
        cursor.next()
