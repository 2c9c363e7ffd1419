"""Every difference that docs/differences.md claims names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROWS = [r for r in (ROOT / "docs" / "differences.md").read_text().splitlines() if r.startswith("| ")]


def test_each_row_names_tests_that_exist() -> None:
    missing, file = [], ""
    for row in ROWS:
        cell = row.rstrip("| ").split("|")[-1]
        if cell.strip() in ("test", "---"):
            continue
        names = re.findall(r"`([^`]+)`", cell)
        assert names, row
        for name in names:
            path, _, function = name.partition("::")
            file = path or file
            target = ROOT / file
            if not target.exists() or (function and f"def {function}(" not in target.read_text()):
                missing.append(name)
    assert not missing
