"""Reads the recorded vectors of the original and compares with them (golden/PROVENANCE.md)."""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).parent / "golden"

# Special in what is compared: tests of their own in test_golden_data.py.
_BY_HAND = ("data/hdf5_output", "data/data_train_crop_mirror")

_SECTIONS = {
    "layers": "layers/*/*.npz",
    "nets": "nets/*/record*.npz",
    "data": "data/*.npz",
    "solvers": "solvers/*/record.npz",
    "models": "proto/*model*.npz",
    "rejects": "rejects/*.prototxt",
}


@dataclass(frozen=True)
class Case:
    """One record. name: its path below golden/, without ending; `str(case)` is its name in pytest."""

    section: str
    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(GOLDEN).with_suffix("").as_posix()

    def __str__(self) -> str:
        return self.name.removeprefix(self.section + "/").removesuffix("/record")

    @cached_property
    def _archive(self) -> dict[str, np.ndarray]:
        with np.load(self.path) as archive:
            return dict(archive)

    @cached_property
    def meta(self) -> dict[str, Any]:
        return json.loads(str(self._archive["meta"]))

    def __getitem__(self, key: str) -> np.ndarray:
        return self._archive[key]

    def __contains__(self, key: str) -> bool:
        return key in self._archive

    def numbered(self, prefix: str) -> list[np.ndarray]:
        """The arrays `<prefix>_0`, `<prefix>_1`, ... as far as they go."""
        arrays = []
        while f"{prefix}_{len(arrays)}" in self:
            arrays.append(self[f"{prefix}_{len(arrays)}"])
        return arrays

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def prototxt(self) -> Path:
        """The net that the record is about (not for solvers)."""
        return self.folder / "net.prototxt" if self.section == "nets" else self.path.with_suffix(".prototxt")


def api_record(scenario: str) -> dict[str, Any]:
    """What the original's Python interface returned in that scenario; arrays as float64."""
    recorded = json.loads((GOLDEN / "api" / "api.json").read_text(encoding="utf-8"))["scenarios"][scenario]
    return {key: _array(value) for key, value in recorded.items()}


def api_seed() -> int:
    """The seed of the random inputs of every scenario."""
    return json.loads((GOLDEN / "api" / "api.json").read_text(encoding="utf-8"))["seed"]


def _array(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"array", "shape"}:
        return np.array(value["array"], np.float64).reshape(value["shape"])
    return value


def cases(section: str) -> list[Case]:
    """Every record of a section."""
    found = [Case(section, path) for path in sorted(GOLDEN.glob(_SECTIONS[section]))]
    return [case for case in found if case.name not in _BY_HAND]


def deviates(kind: str, case: Case) -> bool:
    """Does deviations.json list the case under that kind?"""
    listed = json.loads((GOLDEN / "deviations.json").read_text(encoding="utf-8"))[kind]
    return any(fnmatch.fnmatch(case.name, pattern) for pattern in listed)


class Comparison:
    """Collects every disagreement of a case, so that one run shows them all.

        with Comparison() as compare:
            compare("top_0", got, wanted, rtol=1e-4, atol=1e-5)

    Leaving the block raises AssertionError when anything disagreed.
    """

    def __init__(self) -> None:
        self._faults: list[str] = []

    def __enter__(self) -> Comparison:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._faults:
            raise AssertionError("\n".join(self._faults))

    def __call__(self, what: str, got: Any, wanted: Any, rtol: float, atol: float) -> None:
        fault = disagreement(got, wanted, rtol, atol)
        if fault:
            self._faults.append(f"{what}: {fault}")

    def equal(self, what: str, got: object, wanted: object) -> None:
        if got != wanted:
            self._faults.append(f"{what}: {got!r}, the original has {wanted!r}")


def disagreement(got: Any, wanted: Any, rtol: float, atol: float) -> str:
    """ "" where |got - wanted| <= atol·max(1, max|wanted|) + rtol·|wanted| everywhere, shapes are equal,
    and NaN and infinities stand in the same places; else what is wrong.

    Sentinels like -FLT_MAX do not count in the maximum: they would excuse everything else.
    """
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    if got.shape != wanted.shape:
        return f"shape {got.shape}, the original has {wanted.shape}"
    special = ~np.isfinite(wanted)
    if not np.array_equal(got[special], wanted[special], equal_nan=True):
        return "NaN or infinity in other places"
    size = np.abs(wanted[~special])
    largest = size[size < 1e30].max(initial=1.0)
    difference = np.abs(got[~special] - wanted[~special])
    with np.errstate(invalid="ignore"):
        wrong = ~(difference <= atol * largest + rtol * size)  # a NaN of ours is wrong, too
    if not wrong.any():
        return ""
    worst = int(np.argmax(np.where(wrong, difference - rtol * size, -np.inf)))
    return (
        f"{wrong.sum()} of {wanted.size} numbers differ; the worst is {got[~special][worst]:.8g}, "
        f"the original has {wanted[~special][worst]:.8g} (largest {largest:.3g})"
    )


def param_blobs(net: Any) -> list[Any]:
    """The parameter blobs of a net in the order in which the records count them."""
    return [blob for blobs in net.params.values() for blob in blobs]
