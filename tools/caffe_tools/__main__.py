"""`python -m caffe_tools <command>` is `caffe <command>`."""

from .main import main

main()
