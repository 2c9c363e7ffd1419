"""Windows that slide over spatial axes: their sums and maxima, and the way back.

Images are (N, C, *S), what the windows give is (N, C, *O). A window may reach over the image's edge;
only what lies inside counts. A tap is one position within the kernel, numbered from 1 in scan order.
Loops run over taps, never over pixels, or over windows where those are fewer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..execution import ExecutionContext

# What MAX gives where a window sees nothing, as in the original.
LOWEST = float(np.finfo(np.float32).min)


class Windows:
    """Windows of one kernel, stride and pad at `places` positions of images of one spatial shape.

    divisors (*O): how many pixels each window covers, those in the padding included: AVE divides by it.
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
        axes = [Axis(*axis) for axis in zip(sizes, kernel, stride, pad, places, strict=True)]
        self.axes = axes
        self.apart = all(s >= k for s, k in zip(stride, kernel, strict=True))
        grid = np.indices(self.places)
        self.divisors = math.prod(axis.lengths[i] for axis, i in zip(axes, grid, strict=True))

        count = math.prod(kernel)
        self.tap_type = np.uint8 if count < 256 else np.int32
        numbers = np.arange(1, count + 1, dtype=self.tap_type).reshape(kernel)
        self.taps: list[tuple[Any, tuple, tuple]] = []
        self.windows: list[tuple[tuple, tuple, np.ndarray]] = []
        if math.prod(len(axis.taps) for axis in axes) <= math.prod(places):
            # (tap number, windows that have the tap inside the image, what they see there)
            for parts in itertools.product(*(axis.taps for axis in axes)):
                tap, seen, place = zip(*parts, strict=True)
                self.taps.append((numbers[tap], (..., *seen), (..., *place)))
        else:
            # (window, what it sees, the numbers of the taps that see it)
            for parts in itertools.product(*(axis.windows for axis in axes)):
                window, place, taps = zip(*parts, strict=True)
                self.windows.append(((..., *window), (..., *place), numbers[taps].ravel()))

        # Index within the image's plane, row by row: of each window's first tap, and of a tap after it.
        pitch = [math.prod(self.sizes[i + 1 :]) for i in range(len(axes))]
        self._origin = sum((i * s - p) * step for i, s, p, step in zip(grid, stride, pad, pitch, strict=True))
        offsets = sum(i * step for i, step in zip(np.indices(self.kernel), pitch, strict=True))
        self._offset = np.concatenate([[0], np.ravel(offsets)])

    # -- sums -------------------------------------------------------------------------------------

    def add_up(self, x: np.ndarray, y: np.ndarray) -> None:
        """y[window] = Σ x under it. Axis by axis: a box's sum is the sum of its rows' sums."""
        if self.windows:
            for window, place, numbers in self.windows:
                x[place].reshape(*x.shape[:2], numbers.size).sum(axis=-1, out=y[window])
            return
        for i in reversed(range(len(self.axes))):
            shape = (*x.shape[:2], *self.sizes[:i], *self.places[i:])
            target = y if i == 0 else self.run.scratch(f"windows{i % 2}", shape, y.dtype)
            self.axes[i].add_up(np.moveaxis(x, 2 + i, -1), np.moveaxis(target, 2 + i, -1))
            x = target

    def spread(self, dy: np.ndarray, dx: np.ndarray) -> None:
        """The transpose of add_up: dx[pixel] = Σ dy of the windows over it."""
        if self.windows:
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
        """y[window] = max x under it; chosen: the first tap that sees it, 0 where there is none."""
        y[...] = LOWEST
        if chosen is not None:
            chosen[...] = 0
        for number, seen, place in self.taps:
            best, value = y[seen], x[place]
            if chosen is not None:
                self._mark_higher(value, best, chosen, seen, number)
            np.maximum(best, value, out=best)
        for window, place, numbers in self.windows:
            if numbers.size:
                seen = x[place].reshape(*x.shape[:2], numbers.size)
                first = seen.argmax(axis=-1)
                best = np.take_along_axis(seen, first[..., None], axis=-1)[..., 0]
                np.maximum(best, LOWEST, out=y[window])
                if chosen is not None:
                    chosen[window] = numbers[first]

    def _mark_higher(
        self, value: np.ndarray, best: np.ndarray, chosen: np.ndarray, seen: tuple, number: int
    ) -> None:
        """chosen[seen] = number where value > best."""
        higher = self.run.scratch("higher", chosen.shape, np.bool_)[seen]
        numbered = self.run.scratch("numbered", chosen.shape, chosen.dtype)[seen]
        np.multiply(np.greater(value, best, out=higher).view(np.uint8), number, out=numbered)
        # Numbers rise from tap to tap, so that the latest that was higher is the largest.
        np.maximum(chosen[seen], numbered, out=chosen[seen])

    def draw(self, weights: np.ndarray, uniform: np.ndarray, chosen: np.ndarray) -> None:
        """chosen: a tap of each window with probability weight / Σ weights, by uniform in [0, 1).

        Where all weights are 0 it is the first tap; 0 for a window that sees nothing.
        """
        chosen[...] = 0
        total, running = np.zeros(uniform.shape, weights.dtype), np.zeros(uniform.shape, weights.dtype)
        for _, seen, place in self.taps:
            total[seen] += weights[place]
        threshold = uniform * total
        for number, seen, place in self.taps:
            before = running[seen] <= threshold[seen]
            running[seen] += weights[place]
            chosen[seen] += (before & (running[seen] > threshold[seen])) * number
        for number, seen, _ in reversed(self.taps):
            np.copyto(chosen[seen], number, where=total[seen] == 0)
        for window, place, numbers in self.windows:
            if numbers.size:
                sums = weights[place].reshape(*weights.shape[:2], numbers.size).cumsum(axis=-1)
                below = (sums <= uniform[window][..., None] * sums[..., -1:]).sum(axis=-1)
                chosen[window] = numbers[below % numbers.size]  # all below: all weights are 0

    def sources(self, chosen: np.ndarray) -> np.ndarray:
        """Index within its plane, row by row, of the pixel that each chosen tap sees; -1 for none."""
        index = self._offset.take(chosen)
        index += self._origin
        if not chosen.all():
            index[chosen == 0] = -1
        return index

    def gather(self, chosen: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
        """y[window] = the pixel that the chosen tap sees, 0 for none."""
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

    taps: (tap, windows that have it inside, what they see there). windows: (window, what it sees, its taps
    there). lengths: each window's extent up to the end of the padding.
    """

    def __init__(self, size: int, kernel: int, stride: int, pad: int, places: int):
        self.taps = []
        for tap in range(kernel):
            first = max(0, -((tap - pad) // stride))
            last = min(places - 1, (size - 1 + pad - tap) // stride)
            if first <= last:
                begin = first * stride + tap - pad
                end = last * stride + tap - pad + 1
                self.taps.append((tap, slice(first, last + 1), slice(begin, end, stride)))
        self.windows = []
        for window in range(places):
            start = window * stride - pad
            begin = max(start, 0)
            end = max(begin, min(start + kernel, size))
            self.windows.append((window, slice(begin, end), slice(begin - start, end - start)))
        starts = np.arange(places) * stride - pad
        self.lengths = np.minimum(starts + kernel, size + pad) - starts

    def add_up(self, x: np.ndarray, y: np.ndarray) -> None:
        y[...] = 0
        for _, seen, place in self.taps:
            y[..., seen] += x[..., place]

    def spread(self, dy: np.ndarray, dx: np.ndarray) -> None:
        dx[...] = 0
        for _, seen, place in self.taps:
            dx[..., place] += dy[..., seen]
