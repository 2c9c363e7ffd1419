"""Logs of trainings, the original's and ours, as rows of numbers."""

from __future__ import annotations

import csv
import datetime
import io
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from .atomic_file import atomic_write
from .errors import DataError

Row = dict[str, float]
_RATE_KEY = "LearningRate"
_KEYS = ("NumIters", "Seconds", _RATE_KEY)

# "I0131 12:00:00.123456  4711 solver.cpp:347] Iteration 0, ..."; newer glogs write the year, too.
_LINE = re.compile(r"[IWEF](?:\d{4})?(\d\d)(\d\d) (\d\d):(\d\d):(\d\d(?:\.\d+)?) +\S+ \S+:\d+\] ?(.*)")
_NUMBER = r"([-+]?(?:nan|inf|\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?))"
_ITERATION = re.compile(r"Iteration (\d+)(?:, Testing net \(#(\d+)\))?")
_RATE = re.compile(rf"Iteration \d+, lr = {_NUMBER}", re.IGNORECASE)
_OUTPUT = re.compile(rf" *(Train|Test) net output #(\d+): (\S+) = {_NUMBER}", re.IGNORECASE)
_YEAR = 366 * 86400.0


@dataclass
class TrainingLog:
    """train, test: a row for each iteration that was displayed or tested, with NumIters, Seconds since
    "Solving", LearningRate, and the nets' outputs by name. A name's second value is called NAME_1 and so on;
    outputs of test net k > 0 are called "NAME (#k)"."""

    train: list[Row] = field(default_factory=list)
    test: list[Row] = field(default_factory=list)


def read_log(path: str | Path) -> TrainingLog:
    """The rows in a log file. Losses that are nan are kept, and so is what an interrupted training wrote
    last. Raises DataError for a file that cannot be read or holds no training."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            log = _Reader().read(file)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if not log.train and not log.test:
        raise DataError(
            f"{path} holds no outputs of a training ('Train net output #0: ...'); has the solver a display?"
        )
    return log


class _Reader:
    def __init__(self) -> None:
        self.log = TrainingLog()
        self.start: float | None = None
        self.seconds = math.nan
        self.previous = -1.0
        self.years = 0.0
        self.iteration = math.nan
        self.test_net = 0
        self.rate = math.nan

    def read(self, lines: Iterable[str]) -> TrainingLog:
        for line in lines:
            match = _LINE.match(line)
            if match:
                self._time(match)
                self._message(match[6])
        # The rate is logged after the first outputs, but it was the same before.
        rows = (*self.log.train, *self.log.test)
        first = next((row[_RATE_KEY] for row in rows if not math.isnan(row[_RATE_KEY])), math.nan)
        for row in rows:
            if math.isnan(row[_RATE_KEY]):
                row[_RATE_KEY] = first
        return self.log

    def _time(self, match: re.Match[str]) -> None:
        day, clock = (int(match[1]), int(match[2])), (int(match[3]), int(match[4]))
        try:
            # The year is not told; in a leap year every date exists.
            moment = datetime.datetime(2000, *day, *clock)
        except ValueError:
            return
        now = (moment - datetime.datetime(2000, 1, 1)).total_seconds() + float(match[5]) + self.years
        if now < self.previous - _YEAR / 2:
            self.years += _YEAR
            now += _YEAR
        self.previous = now
        self.start = now if self.start is None else self.start
        self.seconds = now - self.start

    def _message(self, message: str) -> None:
        if message.startswith("Solving"):
            self.start, self.seconds = self.previous, 0.0
        match = _ITERATION.match(message)
        if match:
            self.iteration = float(match[1])
            self.test_net = int(match[2] or 0)
            rate = _RATE.match(message)
            if rate:
                self.rate = float(rate[1])
                if self.log.train and self.log.train[-1]["NumIters"] == self.iteration:
                    self.log.train[-1][_RATE_KEY] = self.rate
            return
        match = _OUTPUT.match(message)
        if match:
            self._output(match[1].lower() == "test", int(match[2]), match[3], float(match[4]))

    def _output(self, test: bool, index: int, name: str, value: float) -> None:
        rows = self.log.test if test else self.log.train
        again = index == 0 and not (test and self.test_net)
        if not rows or rows[-1]["NumIters"] != self.iteration or again:
            values = (self.iteration, self.seconds, self.rate)
            rows.append(dict(zip(_KEYS, values, strict=True)))
        suffix = f" (#{self.test_net})" if test and self.test_net else ""
        column, k = name + suffix, 0
        while column in rows[-1]:
            k += 1
            column = f"{name}_{k}{suffix}"
        rows[-1][column] = value


def columns(rows: Iterable[Row]) -> list[str]:
    """The names in the rows, in the order in which they first appear."""
    return list(dict.fromkeys([*_KEYS, *(name for row in rows for name in row)]))


def write_csv(rows: list[Row], path: str | Path, delimiter: str = ",") -> None:
    """Rows as a table with a heading; what a row does not have is left empty. Raises DataError."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns(rows), delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    try:
        with atomic_write(path) as file:
            file.write(text.getvalue().encode())
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from error
