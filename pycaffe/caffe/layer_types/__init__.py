"""The built-in layers, one file per type; importing this package registers them all."""

from . import python as python
