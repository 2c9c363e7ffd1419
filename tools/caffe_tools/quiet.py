"""Making nets for a look at them, not to run them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from caffe import context
from caffe.kernels import REFERENCE


@contextlib.contextmanager
def shapes_only() -> Iterator[None]:
    """While entered, nets are built without telling how, and with NumPy's code alone: an engine would load
    its library and prepare itself for shapes that are only looked at."""
    logger = logging.getLogger("caffe.net")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        with context.using(engine=REFERENCE):
            yield
    finally:
        logger.setLevel(before)
