"""A sheet of small pictures with their labels, as a PNG."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from caffe.image import encode, resize

_SIDE = 128  # the longest side of a picture, in pixels
_MARGIN, _CAPTION = 6, 18
_LARGEST_FACTOR = 8  # small images are enlarged so much at most
_WHITE, _BLACK = (255, 255, 255), (0, 0, 0)


def contact_sheet(images: Sequence[np.ndarray], captions: Sequence[str], rgb: bool = False) -> bytes:
    """A PNG of images (C, H, W) with a caption below each, row by row.

    Three channels (and alpha) are blue, green, red, or with rgb the other way round; any other number stand
    side by side in grey. What is not in bytes is stretched to black … white, each image by itself.
    """
    import cv2

    pictures = [_fit(_picture(image, rgb)) for image in images]
    columns = max(1, math.ceil(math.sqrt(len(pictures))))
    rows = math.ceil(len(pictures) / columns)
    cell_width = max(_SIDE, max(p.shape[1] for p in pictures)) + _MARGIN
    cell_height = max(p.shape[0] for p in pictures) + _CAPTION + _MARGIN
    sheet = np.full((rows * cell_height + _MARGIN, columns * cell_width + _MARGIN, 3), 255, np.uint8)
    for i, (picture, caption) in enumerate(zip(pictures, captions, strict=True)):
        top, left = _MARGIN + i // columns * cell_height, _MARGIN + i % columns * cell_width
        height, width = picture.shape[:2]
        sheet[top : top + height, left : left + width] = picture
        origin = (left, top + height + _CAPTION - 6)
        cv2.putText(sheet, caption, origin, cv2.FONT_HERSHEY_SIMPLEX, 0.42, _BLACK, 1, cv2.LINE_AA)
    return encode(sheet, "png")


def _picture(image: np.ndarray, rgb: bool) -> np.ndarray:
    """(H, W, 3) uint8."""
    if image.dtype != np.uint8:
        finite = np.where(np.isfinite(image), image, 0).astype(np.float64)
        low, high = finite.min(), finite.max()
        image = ((finite - low) * (255 / (high - low) if high > low else 0)).astype(np.uint8)
    if len(image) in (3, 4):  # the fourth is alpha
        image = image[2::-1] if rgb else image[:3]
    else:
        image = np.broadcast_to(
            np.concatenate(list(image), axis=1), (3, image.shape[1], image.shape[2] * len(image))
        )
    return np.ascontiguousarray(image.transpose(1, 2, 0))


def _fit(picture: np.ndarray) -> np.ndarray:
    """Larger pictures shrink to _SIDE, smaller ones grow by whole factors, with their pixels to be seen."""
    height, width = picture.shape[:2]
    if max(height, width) > _SIDE:
        scale = _SIDE / max(height, width)
        return resize(picture, max(1, round(height * scale)), max(1, round(width * scale)))
    factor = min(_LARGEST_FACTOR, _SIDE // max(height, width))
    return picture.repeat(factor, axis=0).repeat(factor, axis=1)
