"""Detector: a classifier over windows of images, as R-CNN has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import io
from .classifier import input_transformer
from .errors import CaffeError, DataError
from .net import Net
from .proto.caffe_pb2 import TEST


class Detector(Net):
    """A net in TEST phase that takes windows of images, warped to its input.

    mean, input_scale, raw_scale, channel_swap: as caffe.io.Transformer has them. context_pad: pixels of the
    input on each side that show what surrounds the window (R-CNN: 16); where that leaves the image, it is
    the mean. Source: pycaffe's Detector.
    """

    def __init__(
        self,
        model_file: str | Path,
        pretrained_file: str | Path,
        mean: np.ndarray | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        context_pad: int | None = None,
    ):
        super().__init__(model_file, pretrained_file, TEST)
        self.transformer = input_transformer(self, mean, input_scale, raw_scale, channel_swap)
        self.configure_crop(context_pad)

    def detect_windows(
        self, images_windows: Iterable[tuple[str | Path, Iterable[Sequence[float]]]]
    ) -> list[dict[str, Any]]:
        """The net's first output for windows of images.

        images_windows: (file name, windows) pairs; a window is (ymin, xmin, ymax, xmax) in pixels. Returns
        {"window", "prediction", "filename"} for each window, in their order. Raises DataError.
        """
        name = self.inputs[0]
        detections: list[dict[str, Any]] = []
        inputs: list[np.ndarray] = []
        for filename, windows in images_windows:
            image = io.load_image(filename)
            for window in windows:
                try:
                    inputs.append(self.transformer.preprocess(name, self.crop(image, window)))
                except DataError as error:
                    raise DataError(f"{filename}, window {tuple(window)}: {error}") from error
                detections.append({"window": window, "filename": filename})
        if detections:
            predictions = self.forward_all(**{name: np.stack(inputs)})[self.outputs[0]]
            for detection, prediction in zip(detections, predictions, strict=True):
                detection["prediction"] = prediction
        return detections

    def detect_selective_search(self, image_fnames: Iterable[str | Path]) -> list[dict[str, Any]]:
        """detect_windows over the windows that selective search proposes. Raises CaffeError where the
        package for it is missing."""
        try:
            import selective_search_ijcv_with_python as selective_search  # type: ignore[import-not-found]
        except ImportError as error:
            raise CaffeError(
                f"detect_selective_search needs selective_search_ijcv_with_python ({error}), MATLAB code "
                "that is not on PyPI (github.com/sergeyk/selective_search_ijcv_with_python). Windows of any "
                "other origin: detect_windows([(file, [(ymin, xmin, ymax, xmax), …]), …])"
            ) from error
        paths = [str(Path(path).absolute()) for path in image_fnames]
        windows = selective_search.get_windows(paths, cmd="selective_search_rcnn")
        return self.detect_windows(zip(paths, windows, strict=True))

    def configure_crop(self, context_pad: int | None) -> None:
        """Set context_pad, and take the mean from the transformer anew."""
        name = self.inputs[0]
        channels, *size = self.blobs[name].shape[1:]
        self.crop_dims = np.array([*size, channels])
        self.context_pad = context_pad or 0
        if not 0 <= 2 * self.context_pad < min(size):
            raise DataError(
                f"context_pad (={context_pad}) must be less than half of the input's {tuple(size)}"
            )
        # What preprocess would turn into zeros: the mean as it looks in an image.
        bare = io.Transformer(self.transformer.inputs)
        for setting in ("transpose", "channel_swap", "raw_scale", "mean"):
            setattr(bare, setting, getattr(self.transformer, setting))
        zeros = np.zeros((channels, *size), np.float32)
        self.crop_mean = bare.deprocess(name, zeros).reshape(*size, channels)

    def crop(self, im: np.ndarray, window: Sequence[float]) -> np.ndarray:
        """The window (ymin, xmin, ymax, xmax) of an image (H, W, C), its last row and column not included;
        with context_pad, the input's size, warped, with its surroundings. Raises DataError."""
        edges = np.asarray(window)
        if edges.shape != (4,) or edges.dtype.kind not in "fiu" or not np.isfinite(edges).all():
            raise DataError("a window is (ymin, xmin, ymax, xmax)")
        box = edges.astype(np.int64)
        inside = (max(box[0], 0), min(box[2], im.shape[0]), max(box[1], 0), min(box[3], im.shape[1]))
        if inside[0] >= inside[1] or inside[2] >= inside[3]:
            raise DataError(f"the window has no pixel in common with the image of {im.shape[:2]}")
        if not self.context_pad:
            return im[inside[0] : inside[1], inside[2] : inside[3]]
        return self._with_context(im, box)

    def _with_context(self, im: np.ndarray, box: np.ndarray) -> np.ndarray:
        """The box grows about its middle so that, once it is warped to the input, context_pad pixels on each
        side are context. The last row and column of a box belong to it here, as in R-CNN."""
        side = int(self.crop_dims[1])  # the input is a square
        half = (box[2:] - box[:2] + 1) / 2
        middle = box[:2] + half
        half = half * (side / (side - 2 * self.context_pad))
        first, last = np.round(middle - half), np.round(middle + half)
        scale = side / (last - first + 1)
        pad = np.round(np.maximum(0, -first) * scale).astype(int)
        limits = np.array(im.shape[:2])
        first, last = (np.clip(edge, 0, limits).astype(int) for edge in (first, last))
        size = np.minimum(np.round((last - first + 1) * scale).astype(int), side - pad)
        result = self.crop_mean.copy()
        part = io.resize_image(im[first[0] : last[0], first[1] : last[1]], size)
        result[pad[0] : pad[0] + size[0], pad[1] : pad[1] + size[1]] = part
        return result
