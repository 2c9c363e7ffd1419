"""Making nets for a look at them, not for the log."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_net() -> Iterator[None]:
    """Nets are made without telling how, where that is not what was asked for."""
    logger = logging.getLogger("caffe.net")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
