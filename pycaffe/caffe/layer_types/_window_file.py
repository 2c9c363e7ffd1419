"""The file that WindowData reads: images, each with its windows.

# <index>
<path>
<channels>
<height>
<width>
<number of windows>
<class> <overlap> <x1> <y1> <x2> <y2>       as often as said
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ..errors import DataError

# Columns of a window: its image, class, corners (inclusive, in pixels), and line in the file.
IMAGE, LABEL, X1, Y1, X2, Y2, LINE = range(7)

_Lines = Iterator[tuple[int, str]]


@dataclass
class WindowFile:
    """source: its path. paths: of the images, as written. lines: where each is named. sizes: (height, width).
    foreground, background: windows, int32 (n, 7); background has class 0."""

    source: str
    paths: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    foreground: np.ndarray = field(default_factory=lambda: np.zeros((0, 7), np.int32))
    background: np.ndarray = field(default_factory=lambda: np.zeros((0, 7), np.int32))


def read_window_file(source: str, fg_threshold: float, bg_threshold: float) -> WindowFile:
    """Read it; a window with an overlap of at least fg_threshold is foreground, of less than bg_threshold
    background, others are left out. Raises DataError with file and line."""
    found = WindowFile(source)
    foreground: list[np.ndarray] = []
    background: list[np.ndarray] = []
    try:
        with open(source, encoding="utf-8-sig", errors="surrogateescape") as file:
            lines = ((i, text) for i, line in enumerate(file, 1) if (text := line.strip()))
            for number, header in lines:
                if not header.startswith("#"):
                    raise DataError(f'{source}:{number}: "{header[:60]}": expected "# <index>" of an image')
                count = _read_image(found, lines, number)
                windows, overlaps = _read_windows(found, lines, number, count)
                front = overlaps >= fg_threshold
                _check_classes(found, windows[front])
                foreground.append(windows[front])
                back = windows[~front & (overlaps < bg_threshold)]
                back[:, LABEL] = 0
                background.append(back)
    except OSError as error:
        raise DataError(f"Failed to open window file {source}: {error.strerror}") from error
    if not found.paths:
        raise DataError(f"Window file is empty: {source}")
    found.foreground, found.background = np.concatenate(foreground), np.concatenate(background)
    return found


def _read_image(found: WindowFile, lines: _Lines, number: int) -> int:
    """Reads an image's lines up to its windows; returns how many there are."""
    head = list(itertools.islice(lines, 5))
    if len(head) < 5:
        raise _ends(found, number)
    numbers = []
    for what, (at, text) in zip(("channels", "height", "width", "number of windows"), head[1:], strict=True):
        if not (text.isascii() and text.isdigit()):
            raise DataError(f'{found.source}:{at}: "{text[:60]}" is no {what} of an image (a whole number)')
        numbers.append(int(text))
    channels, height, width, count = numbers
    if channels != 3:
        raise DataError(
            f"{found.source}:{head[1][0]}: an image of {channels} channels; WindowData reads images in "
            "colour, so there must be 3"
        )
    found.lines.append(head[0][0])
    found.paths.append(head[0][1])
    found.sizes.append((height, width))
    return count


def _read_windows(found: WindowFile, lines: _Lines, number: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(n, 7) int32 and n overlaps."""
    rows = list(itertools.islice(lines, count))
    if len(rows) < count:
        raise _ends(found, number)
    windows = np.empty((count, 7), np.int32)
    if not count:
        return windows, np.zeros(0)
    try:
        values = np.loadtxt([text for _, text in rows], ndmin=2, comments=None)
    except ValueError:
        values = np.zeros((count, 0))
    if values.shape[1] != 6 or not (np.abs(values) < 2**31).all():
        at, text = next((row for row in rows if not _is_window(row[1])), rows[0])
        raise DataError(
            f'{found.source}:{at}: "{text[:60]}" is no window; expected class, overlap, x1, y1, x2, y2'
        )
    windows[:, IMAGE] = len(found.paths) - 1
    windows[:, LABEL] = values[:, 0]
    windows[:, X1 : Y2 + 1] = values[:, 2:]
    windows[:, LINE] = [at for at, _ in rows]
    return windows, values[:, 1]


def _is_window(text: str) -> bool:
    try:
        values = [float(word) for word in text.split()]
    except ValueError:
        return False
    return len(values) == 6 and all(abs(value) < 2**31 for value in values)


def _check_classes(found: WindowFile, foreground: np.ndarray) -> None:
    wrong = np.flatnonzero(foreground[:, LABEL] <= 0)
    if wrong.size:
        window = foreground[wrong[0]]
        raise DataError(
            f"{found.source}:{window[LINE]}: a foreground window of class {window[LABEL]}; classes start at "
            "1, since 0 is the background"
        )


def _ends(found: WindowFile, number: int) -> DataError:
    return DataError(f"{found.source}:{number}: the file ends within this image's entry")
