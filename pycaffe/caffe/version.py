"""The two versions: the level of compatibility, and this distribution's own."""

from __future__ import annotations

# What scripts compare: this package behaves as BVLC Caffe 1.0.0 does. It is `caffe.__version__`.
__version__ = "1.0.0"

# The version of the distribution `pycaffe`. The build reads it from this line.
DISTRIBUTION = "0.1.0"
