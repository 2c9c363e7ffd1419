"""Text files that list images: a path, white space and an integer label on each line."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .errors import DataError

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_SPACE = " \t\r\n\v\f"


@dataclass(frozen=True)
class ImageList:
    """paths, labels (int32) and line numbers (from 1) of the images that the file `source` lists."""

    source: str
    paths: Sequence[str]
    labels: np.ndarray
    lines: np.ndarray

    def __len__(self) -> int:
        return len(self.paths)

    def place(self, i: int) -> str:
        """ "list.txt:12", for errors about image i."""
        return f"{self.source}:{self.lines[i]}"


def read_image_list(source: str) -> ImageList:
    """The list in a text file.

    The label is what follows the last white space, so that paths may hold spaces. Blank lines, white space
    around, Windows' line ends and a byte order mark do not count; with one of UTF-16 (PowerShell writes it),
    the list is read as that. Raises DataError, with file and line, for a line without a label, and for a
    label that is no integer of 32 bits.
    """
    paths: list[str] = []
    labels: list[int] = []
    lines: list[int] = []
    try:
        with open(source, "rb") as start:
            wide = start.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        # Paths are bytes to the system; those that are no UTF-8 survive the way through text.
        encoding, errors = ("utf-16", "replace") if wide else ("utf-8-sig", "surrogateescape")
        with open(source, encoding=encoding, errors=errors) as file:
            for number, raw in enumerate(file, 1):
                line = raw.strip(_SPACE)
                if not line:
                    continue
                path, label = _split(line, f"{source}:{number}")
                paths.append(path)
                labels.append(label)
                lines.append(number)
    except OSError as error:
        raise DataError(f"cannot read the list of images '{source}': {error.strerror}") from error
    return ImageList(source, paths, np.array(labels, np.int32), np.array(lines, np.int64))


def _split(line: str, place: str) -> tuple[str, int]:
    end = max(line.rfind(" "), line.rfind("\t"))
    shown = line if len(line) <= 80 else f"{line[:77]}..."
    if end < 0:
        raise DataError(f'{place}: "{shown}" has no label; a line is a path, a space, and an integer label')
    label = line[end + 1 :]
    if not _INTEGER.fullmatch(label):
        raise DataError(
            f'{place}: "{shown}": the label "{label[:40]}" is not an integer; a line is a path, a space, and '
            "an integer label"
        )
    number = int(label) if len(label) < 20 else 2**31
    if not -(2**31) <= number < 2**31:
        raise DataError(f"{place}: the label {label[:40]} does not fit into 32 bits")
    return line[:end].rstrip(_SPACE), number
