"""The progress bar of a training."""

from __future__ import annotations

from caffe.progress import ProgressBar as ProgressBar
