"""Write examples/logistic_regression: 10,000 vectors of four numbers in two classes that overlap.

    python models/logistic_regression/make_data.py [FOLDER]

Three quarters are to train on. The best line separates about 96 % of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import h5py
import numpy as np


def main(folder: Path) -> None:
    rng = np.random.default_rng(1701)
    labels = rng.integers(0, 2, 10_000)
    # The classes' means are 3.5 standard deviations apart, in a direction that no axis has.
    direction = np.array([1, -1, 2, 0.5]) / np.sqrt(6.25)
    data = rng.normal(size=(len(labels), 4)) + 3.5 * np.outer(labels - 0.5, direction)
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in (("train", slice(0, 7500)), ("test", slice(7500, None))):
        with h5py.File(folder / f"{part}.h5", "w") as file:
            file["data"] = data[rows].astype(np.float32)
            file["label"] = labels[rows].astype(np.float32)
        (folder / f"{part}.txt").write_text(f"{folder / part}.h5\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "examples/logistic_regression"))
