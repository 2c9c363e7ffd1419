"""The command line: `caffe <command>`, and the original's separate tools under their own names."""
