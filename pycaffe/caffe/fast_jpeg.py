"""JPEGs decoded by simplejpeg, where that is installed (pip install 'pycaffe[jpeg]'): the bits that OpenCV
gives, in four fifths of the time.

Both have libjpeg-turbo inside; OpenCV adds a pass that turns channels round (docs/decisions/0015-jpeg.md).
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

import numpy as np

_SPACES = {"Gray": "GRAY", "YCbCr": "BGR"}
_MOST_PIXELS = 1 << 30  # OpenCV's own limit


def decode_jpeg(data: bytes | memoryview, color: bool | None) -> np.ndarray | None:
    """The image in a JPEG's bytes, uint8, (H, W, 3) in blue, green, red, or (H, W). color: True for three
    channels, False for grey, None as it is stored.

    None is for all that OpenCV must see: without simplejpeg, damaged files, colours of four channels, what
    may have to be turned, and what is too large.
    """
    library = _simplejpeg()
    # An orientation counts unless the image is wanted as it is stored.
    if library is None or color is not None and b"Exif" in bytes(data):
        return None
    try:
        height, width, kind, _ = library.decode_jpeg_header(data)
        space = _SPACES.get(kind)
        if space is None or height * width > _MOST_PIXELS:
            return None
        if color is not None:
            space = "BGR" if color else "GRAY"
        image = library.decode_jpeg(data, space)
    except (ValueError, KeyError):  # libjpeg's errors and warnings, and samplings without a name
        return None
    return image[:, :, 0] if space == "GRAY" else image


@cache
def _simplejpeg() -> ModuleType | None:
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg
