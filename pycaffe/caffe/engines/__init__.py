"""Engines: faster rows for the table of kernels. Importing this package only makes their names known."""

from . import cuda as cuda
from . import onednn as onednn
