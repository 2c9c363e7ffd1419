"""caffe db: what is in a database."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from caffe.atomic_file import atomic_write
from caffe.datasets import resolve_source
from caffe.db import DB, detect_backend, open_db
from caffe.errors import DataError
from caffe.execution import memory_text

from .contact_sheet import contact_sheet
from .count_bar import count_bar
from .db_records import Record, read_records
from .flags import tool_option

_MOST_LABELS, _MOST_SHAPES, _MOST_FAULTS = 20, 10, 20
_BAR = 40  # characters of the longest bar


@click.group("db")
def command() -> None:
    """Look into databases of Datums: LMDBs, LevelDBs and dataset://NAME/PART."""


def _argument(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("database", metavar="DB")(function)


def _open(database: str) -> DB:
    source = resolve_source(database)
    return open_db(source, detect_backend(source) or "lmdb")


def _limit(limit: int) -> int | None:
    return limit if limit > 0 else None


@command.command("info", short_help="count, shapes, labels")
@_argument
@tool_option("limit", 0, "Look at the first so many records only; 0: at all.")
def info(database: str, limit: int) -> None:
    """Show how many records DB has, of which shapes, and how often each label occurs."""
    labels: Counter[int] = Counter()
    kinds: Counter[str] = Counter()
    faults = 0
    first = last = None
    with _open(database) as db:
        with count_bar(min(limit, db.entries or limit) if limit > 0 else db.entries) as show:
            for count, record in enumerate(read_records(db, _limit(limit)), 1):
                first, last = first or record, record
                if record.datum is not None:
                    labels[record.datum.label] += 1
                kinds[_kind(record)] += 1
                faults += bool(record.fault)
                show(count)
        seen = sum(kinds.values())
        entries = seen if db.entries is None and limit <= 0 else db.entries
        total = "an unknown number of" if entries is None else f"{entries:,}"
        click.echo(f"{database}: {db.backend}, {total} records, {memory_text(_size(db.source))} on disk")
    if first is None or last is None:
        return
    if limit > 0:
        click.echo(f"of the first {seen:,}:")
    click.echo(f"keys    {first.name} … {last.name}")
    for kind, count in kinds.most_common(_MOST_SHAPES):
        click.echo(f"images  {count:,} x {kind}")
    _tell_rest(len(kinds), _MOST_SHAPES, "images  and {} other kinds")
    if labels:
        _tell_labels(labels)
    if faults:
        click.echo(f"faults  {faults:,} of {seen:,} cannot be read: caffe db verify {database} names them")


def _kind(record: Record) -> str:
    if record.image is None:
        return "unreadable"
    size = " x ".join(map(str, record.image.shape))
    if record.datum is not None and record.datum.encoded:
        deep = "" if record.image.dtype == np.uint8 else " of 16 bits: read it with force_color or force_gray"
        return f"({size}) as {_file_type(record.datum.data)}{deep}"
    return f"({size}) {'bytes' if record.image.dtype == np.uint8 else 'floats'}"


def _file_type(data: memoryview) -> str:
    begin = bytes(data[:12])
    for mark, name in (
        (b"\xff\xd8", "JPEG"),
        (b"\x89PNG", "PNG"),
        (b"BM", "BMP"),
        (b"GIF", "GIF"),
        (b"II", "TIFF"),
    ):
        if begin.startswith(mark):
            return name
    return "WebP" if begin[8:] == b"WEBP" else "image file"


def _tell_labels(labels: Counter[int]) -> None:
    """The labels in their order, with bars; of many, the most frequent ones."""
    most, least = max(labels.values()), min(labels.values())
    each = f", {most:,} of each" if most == least else ""
    click.echo(f"labels  {len(labels):,} different, {min(labels)} … {max(labels)}{each}")
    if each:
        return
    shown = sorted(label for label, _ in labels.most_common(_MOST_LABELS))
    width, numbers = max(len(str(label)) for label in shown), len(f"{most:,}")
    for label in shown:
        bar = "█" * max(1, round(_BAR * labels[label] / most))
        click.echo(f"  {label:>{width}}  {labels[label]:>{numbers},}  {bar}")
    _tell_rest(len(labels), _MOST_LABELS, "  and {} other labels")


def _tell_rest(count: int, shown: int, text: str) -> None:
    if count > shown:
        click.echo(text.format(f"{count - shown:,}"))


def _size(source: str) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(source) if entry.is_file())


@command.command("head", short_help="the first records, as a table and as pictures")
@_argument
@tool_option("n", 16, "How many records.")
@tool_option("o", "", "Write a contact sheet of the images to this PNG.")
@tool_option("rgb", False, "For -o: the channels are red, green, blue, as CIFAR's.")
@tool_option("force", False, "Overwrite the PNG if it is there.")
def head(database: str, n: int, o: str, rgb: bool, force: bool) -> None:
    """List the first records of DB: key, label, image, size in bytes."""
    if n < 1:
        raise click.UsageError(f"-n must be at least 1, not {n}")
    if o and Path(o).exists() and not force:
        raise DataError(f"{o} exists already; choose another name, or overwrite it with --force")
    with _open(database) as db:
        records = list(read_records(db, n))
    if not records:
        raise DataError(f"{database} has no records")
    width = max(len(record.name) for record in records)
    for record in records:
        label = "?" if record.datum is None else record.datum.label
        what = record.fault or _kind(record)
        click.echo(f"{record.name:<{width}}  {label:>6}  {record.size:>8,} bytes  {what}")
    if o:
        _write_sheet(o, records, rgb)


def _write_sheet(path: str, records: list[Record], rgb: bool) -> None:
    images = [record.image for record in records if record.image is not None]
    if not images:
        raise DataError("no image can be read, so there is no contact sheet")
    labels = [str(record.datum.label) for record in records if record.image is not None and record.datum]
    sheet = contact_sheet(images, labels, rgb)
    try:
        with atomic_write(path) as file:
            file.write(sheet)
    except OSError as error:
        raise DataError(f"cannot write '{path}': {error.strerror or error}") from error
    click.echo(f"Wrote {len(images)} images to {path}")


@command.command("verify", short_help="read everything, and name what is damaged")
@_argument
def verify(database: str) -> None:
    """Read and decode every record of DB; exit status 1 when one cannot be, or when some are missing."""
    faults = count = 0
    with _open(database) as db:
        with count_bar(db.entries) as show:
            for count, record in enumerate(read_records(db), 1):
                if record.fault:
                    faults += 1
                    if faults <= _MOST_FAULTS:
                        click.echo(f"{record.name}: {record.fault}")
                show(count)
        _tell_rest(faults, _MOST_FAULTS, "and {} more")
        db.check()
        if db.entries is not None and db.entries != count:
            raise DataError(
                f"{database}: it says that it has {db.entries:,} records, but {count:,} were found"
            )
    if faults:
        raise DataError(f"{database}: {faults:,} of {count:,} records are damaged")
    click.echo(f"{database}: all {count:,} records are well")
