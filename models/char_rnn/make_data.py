"""Write a text as HDF5 files for models/char_rnn.

    python models/char_rnn/make_data.py TEXT_FILE [FOLDER]

FOLDER (examples/char_rnn unless given) gets train.h5 from the first nine tenths and test.h5 from the rest,
each with the datasets data, cont and target of shape (steps, streams), and lists of these files.
"""

from __future__ import annotations

import sys
from pathlib import Path

import h5py
import numpy as np

STEPS = 50  # of a batch, as in train_val.prototxt
STREAMS = {"train": 32, "test": 8}


def codes(text: str) -> np.ndarray:
    """ASCII codes; every other character becomes a question mark."""
    return np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.float32)


def streams(text: np.ndarray, count: int) -> dict[str, np.ndarray]:
    """Parts of the text side by side, cut to whole batches. ValueError for a text that is too short."""
    steps = (len(text) - 1) // count // STEPS * STEPS
    if steps == 0:
        raise ValueError(f"{len(text)} characters are too few for {count} streams of {STEPS} steps")
    cont = np.ones((steps, count), np.float32)
    cont[0] = 0
    parts = {"data": text[: steps * count], "target": text[1 : steps * count + 1]}
    return {"cont": cont, **{name: part.reshape(count, steps).T for name, part in parts.items()}}


def main(source: Path, folder: Path) -> None:
    text = codes(source.read_text(encoding="utf-8", errors="replace"))
    border = len(text) * 9 // 10
    folder.mkdir(parents=True, exist_ok=True)
    for part, characters in (("train", text[:border]), ("test", text[border:])):
        with h5py.File(folder / f"{part}.h5", "w") as file:
            for name, array in streams(characters, STREAMS[part]).items():
                file[name] = array
        (folder / f"{part}.txt").write_text(f"{folder / part}.h5\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(f"usage: {sys.argv[0]} TEXT_FILE [FOLDER]")
    main(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "examples/char_rnn"))
