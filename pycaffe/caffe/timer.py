"""Timer: how long something takes, in milliseconds."""

from __future__ import annotations

from time import perf_counter


class Timer:
    """timer.start(); ...; timer.stop(); timer.ms

    Starting again begins anew. Source: pycaffe's Timer.
    """

    def __init__(self) -> None:
        self._started: float | None = None
        self._elapsed = 0.0

    def start(self) -> None:
        self._started = perf_counter()

    def stop(self) -> None:
        """Ends the time; without a start before it, nothing happens."""
        if self._started is not None:
            self._elapsed = perf_counter() - self._started
            self._started = None

    @property
    def ms(self) -> float:
        """Milliseconds between start and stop. Asked while it runs, it stops; 0 if it never ran."""
        self.stop()
        return 1e3 * self._elapsed
