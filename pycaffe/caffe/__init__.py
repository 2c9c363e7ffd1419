"""Caffe for today: the `caffe` package."""

from __future__ import annotations
