"""The curves of a training, from its log: a panel for each output of the first test net.

curves.py LOG PICTURE
"""

from __future__ import annotations

import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from caffe.log_file import Row, read_log

BLUE, ORANGE, _GREEN = "#1f5fa8", "#c2560c", "#2c7a3f"
_KEYS = ("NumIters", "Seconds", "LearningRate")


def points(rows: list[Row], name: str) -> tuple[list[float], list[float]]:
    found = [(row["NumIters"], row[name]) for row in rows if name in row]
    return [x for x, _ in found], [y for _, y in found]


def draw(log: str, picture: str) -> None:
    """An output that the train net has, too, on a logarithmic axis; another one, such as an accuracy,
    without the untrained net, which would squeeze all else together."""
    read = read_log(log)
    names = [name for name in read.test[0] if name not in _KEYS and "(#" not in name]
    figure, panels = plt.subplots(
        len(names), 1, sharex=True, squeeze=False, figsize=(8, 3 * len(names)), layout="constrained"
    )
    # Losses above.
    of_train = {name: any(name in row for row in read.train) for name in names}
    for axes, name in zip(panels[:, 0], sorted(names, key=lambda name: not of_train[name]), strict=True):
        if of_train[name]:
            axes.semilogy(*points(read.train, name), color=BLUE, linewidth=1, label="one training batch")
        for net, colour, side in ((name, ORANGE, "bottom"), (f"{name} (#1)", _GREEN, "top")):
            x, y = points(read.test if of_train[name] else [r for r in read.test if r["NumIters"]], net)
            if x:
                label = "test net" + net[len(name) :]
                axes.plot(x, y, color=colour, marker="o", markersize=4, label=label)
                axes.annotate(
                    f"{y[-1]:.4g}",
                    (x[-1], y[-1]),
                    (6, 0),
                    textcoords="offset points",
                    va=side,  # figures of two nets that end together stay legible
                    color=colour,
                )
        axes.margins(x=0.08, y=0.1)
        axes.set_ylabel(name)
        axes.legend(frameon=False)
        axes.grid(color="0.9")
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1, 0].set_xlabel("iteration")
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    draw(*sys.argv[1:])
