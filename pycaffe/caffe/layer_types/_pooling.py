"""Windows that slide over spatial axes: their sums and maxima, and the way back.

Images are (N, C, *S), what the windows give is (N, C, *O). A window may reach over the image's edge;
only what lies inside counts. Loops run over the kernel's taps, never over pixels; or over windows,
where those are fewer than taps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..execution import ExecutionContext

# What MAX gives where a window sees nothing, as in the original.
LOWEST = float(np.finfo(np.float32).min)


class Windows:
    """Windows of one kernel, stride and pad at `places` positions of images of one spatial shape.

    divisors (*O): how many pixels each window covers, those in the padding included: AVE divides by it.
    mark_type: dtype of the marks that tell which pixel of a window was chosen, 0 for none.
    """

    def __init__(
        self,
        run: ExecutionContext,
        sizes: Sequence[int],
        kernel: Sequence[int],
        stride: Sequence[int],
        pad: Sequence[int],
        places: Sequence[int],
    ):
        self.run, self.sizes, self.kernel, self.places = run, tuple(sizes), tuple(kernel), tuple(places)
        self.axes = [Axis(*axis) for axis in zip(sizes, kernel, stride, pad, places, strict=True)]
        self.apart = all(s >= k for s, k in zip(stride, kernel, strict=True))
        self._grid = np.indices(self.places)
        lengths = (axis.lengths[i] for axis, i in zip(self.axes, self._grid, strict=True))
        self.divisors = math.prod(lengths)
        taps, windows = math.prod(kernel), math.prod(places)
        self._by_tap = taps <= windows
        self.mark_type = np.uint8 if self._by_tap and taps < 256 else np.int32
        # Sums go axis by axis, a few taps each, unless the windows are fewer still.
        self._sum_by_window = not self._by_tap and windows <= sum(kernel)

    # What follows is made when it is first asked for: sums along axes need none of it.

    @cached_property
    def taps(self) -> list[tuple[Any, tuple, tuple]]:
        """(mark, windows that have the tap inside the image, what they see there), where taps are fewer than
        windows. A tap's mark is 1 + its number in scan order."""
        taps = []
        for parts in itertools.product(*(axis.taps for axis in self.axes)) if self._by_tap else ():
            tap, seen, place = zip(*parts, strict=True)
            mark = self.mark_type(1 + np.ravel_multi_index(tap, self.kernel))
            taps.append((mark, (..., *seen), (..., *place)))
        return taps

    @cached_property
    def windows(self) -> list[tuple[tuple, tuple, np.ndarray]]:
        """(window, what it sees, the marks there), where windows are fewer than taps. A pixel's mark is 1 +
        its index within the plane."""
        windows = []
        pixels = np.arange(1, math.prod(self.sizes) + 1, dtype=self.mark_type).reshape(self.sizes)
        for parts in itertools.product(*(axis.windows() for axis in self.axes)) if not self._by_tap else ():
            window, place = zip(*parts, strict=True)
            windows.append(((..., *window), (..., *place), pixels[place].ravel()))
        return windows

    @cached_property
    def _index(self) -> tuple[np.ndarray, np.ndarray]:
        """(origin of each window, offset of each tap's mark): they add up to a pixel's index in its plane."""
        pitch = [math.prod(self.sizes[i + 1 :]) for i in range(len(self.axes))]
        corners = (i * axis.stride - axis.pad for i, axis in zip(self._grid, self.axes, strict=True))
        origin = np.asarray(sum(i * step for i, step in zip(corners, pitch, strict=True)))
        offsets = sum(i * step for i, step in zip(np.indices(self.kernel), pitch, strict=True))
        return origin, np.concatenate([[0], np.ravel(offsets)])

    # -- sums -------------------------------------------------------------------------------------

    def add_up(self, x: np.ndarray, y: np.ndarray) -> None:
        """y[window] = Σ x under it. Axis by axis: a box's sum is the sum of its rows' sums."""
        if self._sum_by_window:
            for window, place, marks in self.windows:
                x[place].reshape(*x.shape[:2], marks.size).sum(axis=-1, out=y[window])
            return
        for i in reversed(range(len(self.axes))):
            shape = (*x.shape[:2], *self.sizes[:i], *self.places[i:])
            target = y if i == 0 else self.run.scratch(f"windows{i % 2}", shape, y.dtype)
            self.axes[i].add_up(np.moveaxis(x, 2 + i, -1), np.moveaxis(target, 2 + i, -1))
            x = target

    def spread(self, dy: np.ndarray, dx: np.ndarray) -> None:
        """The transpose of add_up: dx[pixel] = Σ dy of the windows over it."""
        if self._sum_by_window:
            dx[...] = 0
            for window, place, _ in self.windows:
                dx[place] += dy[window].reshape(*dy.shape[:2], *[1] * len(self.axes))
            return
        last = len(self.axes) - 1
        for i, axis in enumerate(self.axes):
            shape = (*dy.shape[:2], *self.sizes[: i + 1], *self.places[i + 1 :])
            target = dx if i == last else self.run.scratch(f"windows{i % 2}", shape, dx.dtype)
            axis.spread(np.moveaxis(dy, 2 + i, -1), np.moveaxis(target, 2 + i, -1))
            dy = target

    # -- one pixel of each window -----------------------------------------------------------------

    def maximum(self, x: np.ndarray, y: np.ndarray, chosen: np.ndarray | None) -> None:
        """y[window] = max x under it; chosen: the mark of the first pixel that has it."""
        y[...] = LOWEST
        if chosen is not None:
            chosen[...] = 0
        for mark, seen, place in self.taps:
            best, value = y[seen], x[place]
            if chosen is not None:
                self._mark_higher(value, best, chosen, seen, mark)
            np.maximum(best, value, out=best)
        for window, place, marks in self.windows:
            if marks.size:
                values = x[place].reshape(*x.shape[:2], marks.size)
                first = values.argmax(axis=-1)
                best = np.take_along_axis(values, first[..., None], axis=-1)[..., 0]
                np.maximum(best, LOWEST, out=y[window])
                if chosen is not None:
                    chosen[window] = marks[first]

    def _mark_higher(
        self, value: np.ndarray, best: np.ndarray, chosen: np.ndarray, seen: tuple, mark: int
    ) -> None:
        """chosen[seen] = mark where value > best."""
        higher = self.run.scratch("higher", chosen.shape, np.bool_)[seen]
        marked = self.run.scratch("marked", chosen.shape, chosen.dtype)[seen]
        np.multiply(np.greater(value, best, out=higher).view(np.uint8), mark, out=marked)
        # Marks rise from tap to tap, so that the latest that was higher is the largest.
        np.maximum(chosen[seen], marked, out=chosen[seen])

    def draw(self, weights: np.ndarray, uniform: np.ndarray, chosen: np.ndarray) -> None:
        """chosen: the mark of a pixel of each window, drawn with probability weight / Σ weights.

        uniform: numbers in [0, 1) to draw by. Where all weights are 0 it is the window's first pixel.
        """
        chosen[...] = 0
        total, running = np.zeros(uniform.shape, weights.dtype), np.zeros(uniform.shape, weights.dtype)
        for _, seen, place in self.taps:
            total[seen] += weights[place]
        threshold = uniform * total
        for mark, seen, place in self.taps:
            before = running[seen] <= threshold[seen]
            running[seen] += weights[place]
            chosen[seen] += (before & (running[seen] > threshold[seen])) * mark
        for mark, seen, _ in reversed(self.taps):
            np.copyto(chosen[seen], mark, where=total[seen] == 0)
        for window, place, marks in self.windows:
            if marks.size:
                sums = weights[place].reshape(*weights.shape[:2], marks.size).cumsum(axis=-1)
                below = (sums <= uniform[window][..., None] * sums[..., -1:]).sum(axis=-1)
                chosen[window] = marks[below % marks.size]  # all are below where all weights are 0

    def sources(self, chosen: np.ndarray) -> np.ndarray:
        """Index within its plane, row by row, of the pixel that each mark stands for; -1 for none."""
        if not self._by_tap:
            return chosen.astype(np.intp) - 1
        origin, offset = self._index
        index = offset.take(chosen)
        index += origin
        if not chosen.all():
            index[chosen == 0] = -1
        return index

    def gather(self, chosen: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
        """y[window] = the pixel that was chosen, 0 for none."""
        index = self.sources(chosen).reshape(*y.shape[:2], math.prod(self.places))
        planes = x.reshape(*x.shape[:2], math.prod(self.sizes))
        np.copyto(y, np.take_along_axis(planes, np.maximum(index, 0), axis=-1).reshape(y.shape))
        y[chosen == 0] = 0

    def scatter(self, chosen: np.ndarray, dy: np.ndarray, dx: np.ndarray) -> None:
        """The transpose of gather: dx[pixel] = Σ dy of the windows that chose it."""
        index = self.sources(chosen)
        planes = np.arange(0, dx.size, math.prod(self.sizes))
        index += planes.reshape(*dx.shape[:2], *[1] * len(self.sizes))
        values = dy
        if not chosen.all():
            index, values = index[chosen != 0], dy[chosen != 0]
        pixels = dx.reshape(-1)
        if self.apart:
            pixels[...] = 0
            pixels[index.reshape(-1)] = values.reshape(-1)
        else:
            pixels[...] = np.bincount(index.reshape(-1), values.reshape(-1), minlength=pixels.size)


class Axis:
    """Windows along one axis; arrays have it last.

    lengths: each window's extent, up to the end of the padding.
    """

    def __init__(self, size: int, kernel: int, stride: int, pad: int, places: int):
        self.size, self.kernel, self.stride, self.pad, self.places = size, kernel, stride, pad, places
        starts = np.arange(places, dtype=np.float64) * stride - pad
        self.lengths = np.minimum(starts + kernel, size + pad) - starts

    @cached_property
    def taps(self) -> list[tuple[int, slice, slice]]:
        """(tap, windows that have it inside the image, what they see there)."""
        taps = []
        for tap in range(self.kernel):
            shift = tap - self.pad
            first = max(0, -(shift // self.stride))
            last = min(self.places - 1, (self.size - 1 - shift) // self.stride)
            if first <= last:
                begin, end = first * self.stride + shift, last * self.stride + shift + 1
                taps.append((tap, slice(first, last + 1), slice(begin, end, self.stride)))
        return taps

    def windows(self) -> Iterator[tuple[int, slice]]:
        """(window, what it sees)."""
        for window in range(self.places):
            start = window * self.stride - self.pad
            begin = max(start, 0)
            yield window, slice(begin, max(begin, min(start + self.kernel, self.size)))

    def add_up(self, x: np.ndarray, y: np.ndarray) -> None:
        y[...] = 0
        for _, seen, place in self.taps:
            y[..., seen] += x[..., place]

    def spread(self, dy: np.ndarray, dx: np.ndarray) -> None:
        dx[...] = 0
        for _, seen, place in self.taps:
            dx[..., place] += dy[..., seen]
