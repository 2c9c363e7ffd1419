"""`python -m caffe_tools <command>` is `caffe <command>`."""

from .entry import caffe

caffe()
