"""A picture of the tables of `scripts/bench nets --markdown`: how many times as fast as its peers a net is.

scripts/bench plot_nets TABLES.md PICTURE.png
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

_TITLES = {"train": "training step", "infer1": "inference of one image", "infer16": "inference of 16 images"}
_PEERS = {"x torch": ("the better PyTorch", "#1f5fa8"), "x ORT": ("ONNX Runtime", "#c2560c")}


def read(tables: Path) -> list[dict[str, str]]:
    """The rows of all tables, {column: cell}."""
    rows, head = [], []
    for line in tables.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if cells[:2] == ["net", "mode"]:
            head = cells
        elif head and len(cells) == len(head) and not set(cells[0]) <= {"-", ":"}:
            rows.append(dict(zip(head, cells, strict=True)))
    return rows


def main(tables: Path, picture: Path) -> None:
    rows = read(tables)
    modes = [m for m in _TITLES if any(r["mode"].split()[0] == m for r in rows)]
    size = (4 * len(modes), 4)
    figure, axes = plt.subplots(1, len(modes), figsize=size, sharey=True, squeeze=False, layout="constrained")
    for axis, mode in zip(axes[0], modes, strict=True):
        here = [r for r in rows if r["mode"].split()[0] == mode]
        places = range(len(here))
        columns = [c for c in _PEERS if any(r[c] != "-" for r in here)]
        height = 0.8 / len(columns)
        for k, column in enumerate(columns):
            name, colour = _PEERS[column]
            values = [0.0 if r[column] == "-" else float(r[column]) for r in here]
            bars = axis.barh([p + k * height for p in places], values, height, color=colour, label=name)
            axis.bar_label(bars, [f"{v:.2f}" if v else "" for v in values], padding=2, fontsize=8)
        axis.axvline(1, color="black", linewidth=1)
        axis.set_yticks([p + 0.4 - height / 2 for p in places], [r["net"] for r in here])
        axis.set_xlim(0, axis.get_xlim()[1] * 1.1)
        axis.set_title(_TITLES[mode], fontsize=10)
        axis.set_xlabel("times as fast as")
        axis.legend(fontsize=8, loc="upper right", bbox_to_anchor=(1, -0.15), ncols=2, frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].invert_yaxis()
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
