"""Which files of a LevelDB hold: CURRENT names a MANIFEST, a log of version edits.

    edit  a sequence of tag (varint) and what belongs to it:
          1 comparator's name   2 log number   3 next file number   4 last sequence number
          5 level, key (compaction)   6 level, file (removed)   9 previous log number
          7 level, file, size, smallest key, largest key (added); all numbers are varints

Source: leveldb's doc/impl.md.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ..errors import DataError
from .files import FileReader
from .leveldb_log import damaged, put_varint, read_records, varint

COMPARATOR = b"leveldb.BytewiseComparator"


class TableFile(NamedTuple):
    level: int
    number: int
    size: int
    smallest: bytes
    largest: bytes


class Version:
    """The state that a MANIFEST describes."""

    def __init__(self) -> None:
        self.log = self.previous_log = self.last_sequence = 0
        self.tables: dict[tuple[int, int], TableFile] = {}  # by (level, number)

    def add(self, edit: bytes) -> None:
        """Apply one edit. Raises IndexError or ValueError for what is none."""
        at = 0

        def number() -> int:
            nonlocal at
            value, at = varint(edit, at)
            return value

        def text() -> bytes:
            nonlocal at
            size = number()
            if at + size > len(edit):
                raise ValueError(f"a name of {size} bytes at byte {at} of {len(edit)}")
            at += size
            return edit[at - size : at]

        while at < len(edit):
            tag = number()
            if tag == 1:
                name = text()
                if name != COMPARATOR:
                    raise ValueError(f"keys in the unknown order {name.decode(errors='replace')!r}")
            elif tag == 2:
                self.log = number()
            elif tag == 3:
                number()
            elif tag == 4:
                self.last_sequence = number()
            elif tag == 5:
                number()
                text()
            elif tag == 6:
                self.tables.pop((number(), number()), None)
            elif tag == 7:
                file = TableFile(number(), number(), number(), text(), text())
                self.tables[file.level, file.number] = file
            elif tag == 9:
                self.previous_log = number()
            else:
                raise ValueError(f"an edit with the unknown tag {tag}")


def read_version(directory: str, about: str) -> Version:
    """The current state of the database in `directory`."""
    try:
        with open(os.path.join(directory, "CURRENT"), "rb") as file:
            name = file.read(256).decode("ascii").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{about}: cannot read CURRENT: {error}") from error
    if not name.startswith("MANIFEST-") or os.path.basename(name) != name:
        raise DataError(f"{about}: CURRENT names {name!r} and no MANIFEST: the database is damaged")
    manifest = FileReader(os.path.join(directory, name), about)
    version = Version()
    try:
        for _, edit in read_records(manifest):
            version.add(edit)
    except (IndexError, ValueError) as error:
        raise damaged(manifest, str(error)) from error
    finally:
        manifest.close()
    return version


def first_edit(log_number: int) -> bytes:
    """The edit that describes a new database whose records stand in one log."""
    edit = [b"\x01", put_varint(len(COMPARATOR)), COMPARATOR]
    for tag, value in ((2, log_number), (9, 0), (3, log_number + 1), (4, 0)):
        edit += (put_varint(tag), put_varint(value))
    return b"".join(edit)
