"""Curves of a training: live in a notebook, or from logs. Needs Matplotlib (pip install 'pycaffe[plot]').

solver = caffe.get_solver("solver.prototxt")
curve = caffe.plot.LossCurve(solver)       # in a notebook: appears, and follows
solver.step(1000)
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .errors import CaffeError
from .log_file import TrainingLog, columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure  # type: ignore[import-not-found]

    from .solver import Solver


def _figure(width: float, height: float) -> Figure:
    """A figure that is drawn in memory; no window and no global state."""
    try:
        from matplotlib.figure import Figure  # type: ignore[import-not-found]
    except ImportError as error:
        raise CaffeError(f"plots need Matplotlib ({error}): pip install 'pycaffe[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained")


class LossCurve:
    """The loss of a solver's coming iterations, as a curve that grows while it trains.

    In a notebook it is shown where it is made, and drawn anew every `seconds` and when an iteration count
    divisible by `every` is reached. Anywhere, `iterations` and `losses` hold the numbers (the loss as the log
    shows it: the mean over average_loss iterations), and save(path) writes a picture.
    """

    def __init__(self, solver: Solver, seconds: float = 1.0, every: int = 0):
        self.iterations: list[int] = []
        self.losses: list[float] = []
        self._solver = solver
        self._seconds, self._every = seconds, every
        self._drawn = perf_counter()
        self._display = _notebook_display(self)
        solver.add_callback(on_gradients_ready=self._note)

    def _note(self) -> None:
        solver = self._solver
        self.iterations.append(solver.iter)
        self.losses.append(solver.smoothed_loss)
        if self._display is not None:
            due = self._every and solver.iter % self._every == 0
            if due or perf_counter() - self._drawn >= self._seconds:
                self.update()

    def update(self) -> None:
        """Draw the curve as it is now, where it is shown."""
        if self._display is not None:
            self._display.update(self)
            self._drawn = perf_counter()

    def figure(self) -> Figure:
        figure = _figure(7, 3.5)
        axes = figure.subplots()
        axes.plot(self.iterations, self.losses, linewidth=1)
        axes.set_xlabel("iteration")
        axes.set_ylabel("loss")
        axes.set_title(self._solver.net.name)
        axes.grid(alpha=0.3)
        return figure

    def save(self, path: str | Path) -> None:
        """Write the curve as .png, .svg or .pdf."""
        _save(self.figure(), path)

    def _repr_png_(self) -> bytes:
        data = io.BytesIO()
        self.figure().savefig(data, format="png")
        return data.getvalue()


def _notebook_display(value: Any) -> Any:
    """IPython's handle of what it shows, or None where no notebook can: a terminal would write a line for
    each picture."""
    try:
        from IPython import get_ipython  # type: ignore[import-not-found]
        from IPython.display import display  # type: ignore[import-not-found]
    except ImportError:
        return None
    kernel = getattr(get_ipython(), "kernel", None)
    return display(value, display_id=True) if kernel is not None else None


def plot_logs(
    logs: Mapping[str, TrainingLog], x: str = "NumIters", names: Iterable[str] | None = None
) -> Figure:
    """Curves of several trainings, {label: log}: a panel for each output, of the train and the test net in
    one; labels tell the trainings apart.

    x: "NumIters" or "Seconds". names: the outputs to show, also "LearningRate"; default: all but that.
    Raises CaffeError for names that no log has.
    """
    parts = [
        (label, f"C{k % 10}", part, rows)
        for k, (label, log) in enumerate(logs.items())
        for part, rows in (("train", log.train), ("test", log.test))
    ]
    known = columns(row for *_, rows in parts for row in rows)
    default = [name for name in known if name not in ("NumIters", "Seconds", "LearningRate")]
    chosen = list(names) if names is not None else default
    unknown = [name for name in (*chosen, x) if name not in known]
    if unknown or not chosen:
        raise CaffeError(f"the logs have no {', '.join(unknown) or 'outputs'}; they have: {', '.join(known)}")
    figure = _figure(8, 3 * len(chosen))
    panels = figure.subplots(len(chosen), squeeze=False)[:, 0]
    for axes, name in zip(panels, chosen, strict=True):
        for label, colour, part, rows in parts:
            points = [(row[x], row[name]) for row in rows if name in row]
            if points and not (part == "test" and name == "LearningRate"):
                style = "-" if part == "train" else "--o"
                text = f"{label} ({part})"
                axes.plot(*zip(*points, strict=True), style, color=colour, markersize=3, label=text)
        axes.set_ylabel(name)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    panels[-1].set_xlabel("iteration" if x == "NumIters" else "seconds")
    return figure


def _save(figure: Figure, path: str | Path) -> None:
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise CaffeError(f"cannot write {path}: {error}") from error


def save_plot(logs: Mapping[str, TrainingLog], path: str | Path, **choice: Any) -> None:
    """plot_logs into a file: .png, .svg, .pdf."""
    _save(plot_logs(logs, **choice), path)
