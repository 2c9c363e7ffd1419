"""Every line of the recorded logs of the original, in its order, byte for byte but for the last digits of
numbers, times and the source line."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[1] / "golden"
LOGS = GOLDEN / "solvers" / "logs"
CASES = json.loads((LOGS / "returncodes.json").read_text())

# Lines that only one of the two prints, none of which a parser in use reads.
_THEIRS = ("Creating layer ", "Datatype class: ", "Ignoring source layer ")
_OURS = (
    "Datatype class: ",
    "Ignoring source layer ",
    "Layer ",
    "CPU engine: ",
    "The trained parameters are in ",
    "Peak memory of this process: ",
    "Whole ",
    "There is no logs/resume_",
    "No snapshot was written",
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]\d+)?")
_TIMES = re.compile(r"\([-+.\de]+ iter/s, [-+.\de]+s/|: (?:T|[-+.\de]+) ms\.")


def lines(text: str, without: tuple[str, ...]) -> list[str]:
    """Severity and message of each line, times removed. What stands below a message of several lines is
    the definition, in protobuf's words."""
    found = []
    for line in text.splitlines():
        match = re.fullmatch(r"([IWEF])\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [\w.]+:\d+\] (.*)", line)
        if match and match[1] != "F" and not match[2].startswith(without):
            found.append(f"{match[1]} {_TIMES.sub('(time)', match[2])}")
    return found


@pytest.mark.parametrize("case", sorted(CASES))
def test_log_is_the_originals(cli, tmp_path, case):
    for name in ("data", "logs"):
        shutil.copytree(GOLDEN / "solvers" / name, name)
    for file in (GOLDEN / "solvers").iterdir():
        if file.is_file():
            shutil.copy(file, file.name)
    recorded = (LOGS / f"{case}.log").read_text()
    done = cli(*recorded.splitlines()[0].split()[2:])
    assert (done.status == 0) == (CASES[case] == 0), done.err

    theirs, ours = lines(recorded, _THEIRS), lines(done.err, _OURS)
    if CASES[case] != 0:
        # The original had built its nets before it found these faults; ours looks first.
        ours, theirs = ours[: len(theirs)], theirs[: len(ours)]
        assert done.error
    assert len(ours) == len(theirs)
    for mine, original in zip(ours, theirs, strict=True):
        assert _NUMBER.sub("#", mine) == _NUMBER.sub("#", original)
        for x, y in zip(_NUMBER.findall(mine), _NUMBER.findall(original), strict=True):
            assert math.isclose(float(x), float(y), rel_tol=5e-4, abs_tol=1e-4), (mine, original)
