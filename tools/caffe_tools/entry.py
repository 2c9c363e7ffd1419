"""The console scripts. They begin before anything is imported, so that Ctrl-C always ends them quietly."""

from __future__ import annotations

import sys


def _run(tool: str | None = None) -> None:
    try:
        from .main import run
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run(sys.argv[1:], tool))


def caffe() -> None:
    _run()


def convert_imageset() -> None:
    _run("convert_imageset")


def compute_image_mean() -> None:
    _run("compute_image_mean")


def extract_features() -> None:
    _run("extract_features")


def convert_mnist_data() -> None:
    _run("convert_mnist_data")


def convert_mnist_siamese_data() -> None:
    _run("convert_mnist_siamese_data")


def convert_cifar_data() -> None:
    _run("convert_cifar_data")


def upgrade_net_proto_text() -> None:
    _run("upgrade_net_proto_text")


def upgrade_net_proto_binary() -> None:
    _run("upgrade_net_proto_binary")


def upgrade_solver_proto_text() -> None:
    _run("upgrade_solver_proto_text")
