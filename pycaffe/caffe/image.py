"""Image files, decoded, resized and encoded by OpenCV, as the original has it.

Images are uint8, (H, W, 3) in the order blue, green, red, or (H, W). EXIF orientation is applied; palettes,
alpha, CMYK and 16 bits are brought to the form that is asked for. OpenCV is imported by the first use.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .errors import DataError
from .fast_jpeg import decode_jpeg
from .image_header import broken_promise

_JPEG, _END_OF_JPEG = b"\xff\xd8\xff", b"\xff\xd9"


def read_file(path: str) -> bytes:
    """All bytes of an image file. Raises DataError with the original's words."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"Could not open or find file {path}: {reason}") from error


def decode(data: bytes | memoryview, color: bool | None = True) -> np.ndarray:
    """The image in a file's bytes. color: True for three channels, False for grey, None as it is stored
    (without orientation, of any number of channels and any depth).

    A JPEG that ends too early is decoded as far as it goes; the rest is grey. Raises DataError.
    """
    import cv2

    flag = cv2.IMREAD_UNCHANGED if color is None else cv2.IMREAD_COLOR if color else cv2.IMREAD_GRAYSCALE
    if not len(data):
        raise DataError("it has no bytes")
    promise = broken_promise(data)
    if promise:
        raise DataError(f"{promise}: it is damaged or truncated")
    is_jpeg = bytes(data[:3]) == _JPEG
    if is_jpeg and (image := decode_jpeg(data, color)) is not None:
        return image
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flag)
        if image is None and is_jpeg:
            # From a file, libjpeg would supply the missing end of the image itself.
            image = cv2.imdecode(np.frombuffer(bytes(data) + _END_OF_JPEG, np.uint8), flag)
    except (cv2.error, MemoryError) as error:
        raise DataError(f"OpenCV cannot decode its {len(data)} bytes: {_reason(error)}") from error
    if image is None:
        raise DataError(f"its {len(data)} bytes are no image to OpenCV, or a damaged one")
    return image


def _reason(error: Exception) -> str:
    """OpenCV's messages are "OpenCV(5.0.0) /path/file.cpp:79: error: (-215:Assertion failed) …"."""
    text = " ".join(str(error).split())
    return text.rpartition(") ")[2] or text or type(error).__name__


def read_image(path: str, color: bool = True, height: int = 0, width: int = 0) -> np.ndarray:
    """The image of a file; resized where height and width are given. Raises DataError that names the file."""
    data = read_file(path)
    try:
        return resize(decode(data, color), height, width)
    except DataError as error:
        raise DataError(f"Could not load {path}: {error}") from error


def resize(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Bilinear, to this size; as it is where both are 0. Raises DataError for sizes that OpenCV refuses."""
    import cv2

    if not (height and width) or image.shape[:2] == (height, width):
        return image
    try:
        return cv2.resize(image, (width, height))
    except cv2.error as error:
        raise DataError(f"OpenCV cannot resize it to {height} x {width}: {_reason(error)}") from error


def encode(image: np.ndarray, kind: str) -> bytes:
    """As the bytes of a file of this kind: "jpg", "png" ... Raises DataError for a kind that OpenCV does not
    write."""
    import cv2

    try:
        done, data = cv2.imencode(f".{kind}", image)
    except cv2.error as error:
        raise DataError(f"OpenCV does not encode images as '{kind}'; it does png and jpg") from error
    if not done:
        raise DataError(f"OpenCV could not encode it as '{kind}'")
    return data.tobytes()


def channels_first(image: np.ndarray) -> np.ndarray:
    """(C, H, W) of an image (H, W, C) or (H, W); a view."""
    return image[None] if image.ndim == 2 else image.transpose(2, 0, 1)


class PlanarCopy:
    """Copies uint8 images (C, H, W) into float32 arrays, where NumPy would be slow at it: channels that are
    interleaved in memory, as OpenCV's are, mirroring, and the mean in the same pass. Keeps memory of one
    image between calls."""

    def __init__(self) -> None:
        self._memory = np.zeros(0, np.uint8)

    def __call__(
        self, image: np.ndarray, mirror: bool, out: np.ndarray, mean: np.ndarray | None = None
    ) -> None:
        """out (C, H, W) = image, mirrored left to right or not, minus mean: (C, H, W), or one value for each
        channel or for all, as (C, 1, 1) or (1, 1, 1)."""
        interleaved = image.strides[0] == 1 and len(image) > 1
        channels: Iterable[np.ndarray] = image
        if interleaved or mirror:
            import cv2

            if self._memory.size < image.size:
                self._memory = np.empty(image.size, np.uint8)
            planes = self._memory[: image.size].reshape(image.shape)
            if interleaved:
                pixels = image.transpose(1, 2, 0)
                channels = cv2.split(cv2.flip(pixels, 1) if mirror else pixels, list(planes))
            else:
                channels = [cv2.flip(c, 1, plane) for c, plane in zip(image, planes, strict=True)]
        for i, (target, channel) in enumerate(zip(out, channels, strict=True)):
            if mean is None:
                np.copyto(target, channel)
            else:
                _subtract(channel, mean[i if len(mean) > 1 else 0], target)


def _subtract(channel: np.ndarray, mean: np.ndarray, out: np.ndarray) -> None:
    """out (H, W) float32 = channel uint8 - mean, (H, W) or (1, 1) float32."""
    if mean.size == 1:
        np.subtract(channel, mean[0, 0], out=out)
        return
    import cv2

    result = cv2.subtract(channel, mean, out, dtype=cv2.CV_32F)
    if result is not out:  # it is, for a contiguous out
        np.copyto(out, result)
