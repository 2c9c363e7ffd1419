"""A picture of a training: loss and test accuracy over the iterations of a log of `caffe train`.

scripts/bench plot_training docs/results/lenet.log docs/results/lenet.png
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

_TRAIN = re.compile(r"Iteration (\d+) \(.* loss = (\S+)$")
_TESTING = re.compile(r"Iteration (\d+), Testing net")
_ACCURACY = re.compile(r"Test net output #\d+: accuracy = (\S+)")

# Two quantities, two axes one above the other, each in one colour.
_BLUE, _ORANGE = "#1f5fa8", "#c2560c"


def read(log: Path) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
    """(iteration, loss) of each displayed iteration, (iteration, accuracy) of each test."""
    losses, accuracies, at = [], [], 0
    for line in log.read_text().splitlines():
        if match := _TRAIN.search(line):
            losses.append((int(match[1]), float(match[2])))
        elif match := _TESTING.search(line):
            at = int(match[1])
        elif match := _ACCURACY.search(line):
            accuracies.append((at, float(match[1])))
    return losses, accuracies


def main(log: Path, picture: Path) -> None:
    losses, accuracies = read(log)
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(8, 6), layout="constrained")
    above.semilogy(*zip(*losses, strict=True), color=_BLUE, linewidth=1)
    above.set_ylabel("loss of one training batch")
    trained = [(i, a) for i, a in accuracies if i]  # the untrained net would squeeze all others together
    below.plot(*zip(*trained, strict=True), color=_ORANGE, marker="o", markersize=4)
    below.set_ylabel("test accuracy")
    below.set_xlabel("iteration")
    last, best = trained[-1]
    below.annotate(f"{best:.4f}", (last, best), (-4, 8), textcoords="offset points", ha="right")
    below.margins(y=0.15)
    for axes in (above, below):
        axes.grid(color="0.9")
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=120)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
