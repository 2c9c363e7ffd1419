"""WindowData: windows cut out of images, a set share of them foreground."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..data_transformer import read_mean
from ..errors import DataError
from ..image import PlanarCopy, channels_first, decode, read_file, resize
from ..layer_registry import register_layer
from ..prefetch import Batch, Places, Prefetcher
from ..proto import caffe_pb2
from ._prefetching import Draws, PrefetchingLayer
from ._window_file import IMAGE, LABEL, LINE, X1, X2, Y1, Y2, WindowFile, read_window_file

log = logging.getLogger("caffe.data")

_MODES = ("warp", "square")


@register_layer("WindowData")
class WindowDataLayer(PrefetchingLayer):
    """top[0][n] = warp(window) - mean, top[1][n] = its class, of windows drawn at random.

    top[0]: (N, 3, crop_size, crop_size), channels blue, green, red. top[1], optional: (N,) classes, 0 for
    background. The first N - ⌊N · fg_fraction⌋ windows are background, the others foreground.

    window_data_param.source         window file: images, their windows, classes and overlaps
    window_data_param.root_folder    put before each image's path, as it is (default "")
    window_data_param.batch_size     N, at least 1
    window_data_param.fg_threshold   overlap from which on a window is foreground (default 0.5)
    window_data_param.bg_threshold   overlap below which it is background (default 0.5)
    window_data_param.fg_fraction    share of foreground windows (default 0.25)
    window_data_param.context_pad    pixels of the crop, on each side, that show the window's surroundings
                                     (default 0); what lies outside the image becomes 0
    window_data_param.crop_mode      "warp" (default) stretches windows; "square" widens them to squares first
    window_data_param.cache_images   keep the image files in memory (default false)
    transform_param.crop_size        compulsory: side of what windows are warped to, in pixels
    transform_param.mirror, mean_value   as with Data
    transform_param.mean_file        its centre of crop_size x crop_size is subtracted
    transform_param.scale            has no effect, as in the original; a warning says so
    data_param.prefetch              batches read ahead (default 4)

    Windows are drawn by seed, layer name and place in the stream, in both phases. No gradient.
    Raises LayerError for impossible parameters, DataError with window file and line.
    Source: Caffe's WindowDataLayer.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param, transform = self.layer_param.window_data_param, self.layer_param.transform_param
        size = self._crop_size()
        self.check_positive(param, "window_data_param", "batch_size")
        self.check_positive(self.layer_param.data_param, "data_param", "prefetch")
        if param.crop_mode not in _MODES:
            raise self.error(
                f"window_data_param.crop_mode must be {' or '.join(_MODES)}, not '{param.crop_mode}'"
            )
        if not 0 <= param.fg_fraction <= 1:
            raise self.error(f"window_data_param.fg_fraction (={param.fg_fraction:g}) must lie in [0, 1]")
        if transform.scale != 1:
            log.warning(
                "layer '%s' (WindowData): transform_param.scale (=%g) has no effect; scale by a Power layer",
                self.name,
                transform.scale,
            )
        try:
            mean = self._mean(transform, size)
            windows = read_window_file(param.source, param.fg_threshold, param.bg_threshold)
            self._log(windows)
            self._fill = _Fill(windows, param, transform, mean, Draws(self.run.seed, self.name))
            # Windows are drawn with replacement: there is no end after which they repeat.
            self._reader = Prefetcher(
                Places(f"the windows of '{param.source}'", None, param.batch_size, **self.share()),
                self._fill,
                param.batch_size,
                prefetch=self.layer_param.data_param.prefetch,
                threads=self.run.threads,
            )
        except DataError as error:
            raise self.named(error) from error
        self._shape = (param.batch_size, 3, size, size)
        self.check_prefetch()
        self.log_size()

    def _crop_size(self) -> int:
        size, pad = self.layer_param.transform_param.crop_size, self.layer_param.window_data_param.context_pad
        if not size:
            raise self.error("transform_param.crop_size must be positive: windows are warped to that size")
        if 2 * pad >= size:
            raise self.error(
                f"window_data_param.context_pad (={pad}) leaves nothing of crop_size (={size}); it must be "
                "less than half of it"
            )
        return size

    def _mean(self, transform: caffe_pb2.TransformationParameter, size: int) -> np.ndarray | None:
        """What is subtracted: (3, size, size), (3, 1, 1), or None."""
        if transform.mean_file and transform.mean_value:
            raise DataError("Cannot specify mean_file and mean_value at the same time")
        if transform.mean_value:
            if len(transform.mean_value) not in (1, 3):
                raise DataError(
                    f"Specify either 1 mean_value or as many as channels: {len(transform.mean_value)} given, "
                    "the images have 3"
                )
            return np.array(transform.mean_value, np.float32).reshape(-1, 1, 1)
        if not transform.mean_file:
            return None
        mean = read_mean(transform.mean_file)
        start = (mean.shape[2] - size) // 2  # of rows, too, as in the original
        if mean.shape[0] != 3 or start < 0 or start + size > mean.shape[1]:
            raise DataError(
                f"mean_file '{transform.mean_file}' has {' x '.join(map(str, mean.shape))} values; 3 "
                f"channels of at least {size} x {size} are needed"
            )
        return np.ascontiguousarray(mean[:, start : start + size, start : start + size])

    def _log(self, windows: WindowFile) -> None:
        param = self.layer_param.window_data_param
        log.info(
            "Window data layer:\n  foreground (object) overlap threshold: %g\n  background (non-object) "
            "overlap threshold: %g\n  foreground sampling fraction: %g\n  cache_images: %s\n"
            "  root_folder: %s",
            param.fg_threshold,
            param.bg_threshold,
            param.fg_fraction,
            str(param.cache_images).lower(),
            param.root_folder,
        )
        log.info("Number of images: %d", len(windows.paths))
        log.info("class 0 has %d samples", len(windows.background))
        for label, count in zip(*np.unique(windows.foreground[:, LABEL], return_counts=True), strict=True):
            log.info("class %d has %d samples", label, count)
        log.info("Amount of context padding: %d", param.context_pad)
        log.info("Crop mode: %s", param.crop_mode)

    def reseed(self) -> None:
        self._fill.draws = Draws(self.run.seed, self.name)


class _Fill:
    """Draws, cuts and warps the windows of a batch; runs in the reader's threads."""

    def __init__(
        self,
        windows: WindowFile,
        param: caffe_pb2.WindowDataParameter,
        transform: caffe_pb2.TransformationParameter,
        mean: np.ndarray | None,
        draws: Draws,
    ):
        self.draws = draws
        self._windows, self._root = windows, param.root_folder
        self._mean, self._mirror = mean, transform.mirror
        self._size, self._pad, self._square = (
            transform.crop_size,
            param.context_pad,
            param.crop_mode == "square",
        )
        front = int(np.float32(param.batch_size) * np.float32(param.fg_fraction))
        # Background first, then foreground.
        self._sets = [(windows.background, param.batch_size - front), (windows.foreground, front)]
        for (found, wanted), what in zip(self._sets, ("background", "foreground"), strict=True):
            if wanted and not len(found):
                raise DataError(
                    f"{windows.source} has no {what} windows, but {wanted} of {param.batch_size} in a batch "
                    "must be; look at fg_threshold, bg_threshold and fg_fraction"
                )
        self._cache: dict[int, bytes] = {}
        if param.cache_images:
            for i in range(len(windows.paths)):
                self._cache[i] = self._bytes(i)

    def _bytes(self, i: int) -> bytes:
        try:
            return self._cache.get(i) or read_file(self._root + self._windows.paths[i])
        except DataError as error:
            raise DataError(f"{self._windows.source}:{self._windows.lines[i]}: {error}") from error

    def _image(self, i: int) -> np.ndarray:
        data = self._bytes(i)
        try:
            return decode(data)
        except DataError as error:
            path = self._root + self._windows.paths[i]
            place = f"{self._windows.source}:{self._windows.lines[i]}"
            raise DataError(f"{place}: Could not load {path}: {error}") from error

    def __call__(self, places: range, batch: Batch) -> None:
        size = self._size
        batch.reshape((3, size, size))
        words = self.draws.words(batch.first, len(places), 2)
        copy = PlanarCopy()
        n = 0
        for windows, count in self._sets:
            for index, flip in words[n : n + count].tolist():
                window = windows[index * len(windows) >> 32]
                mirror = self._mirror and bool(flip & 1)
                self._draw(window.tolist(), mirror, batch.data[n], copy)
                batch.labels[n] = window[LABEL]
                n += 1

    def _draw(self, window: list[int], mirror: bool, out: np.ndarray, copy: PlanarCopy) -> None:
        image = self._image(window[IMAGE])
        place = f"{self._windows.source}:{window[LINE]}"
        cut, row, column = self._cut(window, image, mirror, place)
        height, width = cut.shape[:2]
        out.fill(0)
        target = out[:, row : row + height, column : column + width]
        mean = self._mean
        if mean is not None and mean.shape[1] > 1:
            mean = mean[:, row : row + height, column : column + width]
        copy(channels_first(cut), mirror, target, mean)

    def _cut(
        self, window: list[int], image: np.ndarray, mirror: bool, place: str
    ) -> tuple[np.ndarray, int, int]:
        """The warped window, not mirrored yet, and the row and column of the crop at which it belongs."""
        rows, columns = image.shape[:2]
        size = self._size
        across = _Extent(window[X1], window[X2], columns)
        down = _Extent(window[Y1], window[Y2], rows)
        if self._pad or self._square:
            half = max(across.half, down.half) if self._square else None
            scale = np.float32(size) / np.float32(size - 2 * self._pad)
            across.widen(half, scale, size)
            down.widen(half, scale, size)
        column, row = across.after if mirror else across.before, down.before
        # Rounding may make the window and what is around it one pixel too large together.
        width, height = min(across.warped(size), size - column), min(down.warped(size), size - row)
        if not across.inside or not down.inside or min(width, height) < 1:
            raise DataError(
                f"{place}: the window {window[X1]} {window[Y1]} {window[X2]} {window[Y2]} (x1 y1 x2 y2) lies "
                f"outside its image of {columns} x {rows} (width x height), or leaves nothing of it"
            )
        part = image[down.first : down.last + 1, across.first : across.last + 1]
        try:
            return resize(part, height, width), row, column
        except DataError as error:
            raise DataError(f"{place}: {error}") from error


class _Extent:
    """A window along one axis of an image. first, last: its pixels, inclusive. before, after: pixels of the
    crop, on each side, that lie outside the image."""

    def __init__(self, first: int, last: int, length: int):
        self.first, self.last, self.length = first, last, length
        self.before = self.after = 0
        self._scale = np.float32(0)  # of the crop to the image; 0: not widened

    @property
    def half(self) -> np.float32:
        return np.float32((self.last - self.first + 1) / 2)

    @property
    def inside(self) -> bool:
        return 0 <= self.first <= self.last < self.length

    def widen(self, half: np.float32 | None, scale: np.float32, size: int) -> None:
        """Grow to `half` on each side of the middle, times scale; then clip at the image's edges."""
        middle = np.float32(self.first) + self.half
        reach = (self.half if half is None else half) * scale
        first, last = _round(middle - reach), _round(middle + reach)
        self._scale = np.float32(size) / np.float32(last - first + 1)
        before, after = max(0, -first), max(0, last - self.length + 1)
        self.first, self.last = first + before, last - after
        self.before, self.after = self._warp(before), self._warp(after)

    def warped(self, size: int) -> int:
        """How many pixels of the crop it fills."""
        return size if not self._scale else self._warp(self.last - self.first + 1)

    def _warp(self, pixels: int) -> int:
        return _round(np.float32(pixels) * self._scale)


def _round(value: np.float32) -> int:
    """Halves away from zero, as C does."""
    return math.floor(abs(float(value)) + 0.5) * (1 if value > 0 else -1)
