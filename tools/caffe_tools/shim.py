"""caffe shim: a folder tree like that of a built Caffe, for scripts that call build/tools/caffe."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

import caffe
from caffe.errors import CaffeError

from .deprecated import NAMES

_MARK = "# written by caffe shim"

# Programs of the original's build/tools, and the command that each is.
_PROGRAMS = {
    "caffe": "",
    **{
        name: name
        for name in (
            "convert_imageset",
            "compute_image_mean",
            "extract_features",
            "upgrade_net_proto_text",
            "upgrade_net_proto_binary",
            "upgrade_solver_proto_text",
            "device_query",
            *NAMES,
        )
    },
}

# Programs of the original's build/examples, below folders of their own.
_EXAMPLES = {
    "mnist": "convert_mnist_data",
    "cifar10": "convert_cifar_data",
    "siamese": "convert_mnist_siamese_data",
}


# Python scripts of the original, likewise.
_SCRIPTS = {
    "python/classify.py": ["classify"],
    "python/detect.py": ["detect"],
    "python/draw_net.py": ["draw_net"],
    "python/train.py": ["train"],
    "tools/extra/parse_log.py": ["log", "parse"],
    "tools/extra/summarize.py": ["net", "summary"],
}


@click.command("shim")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def command(folder: Path) -> None:
    """Write build/tools, build/examples, the same in .build_release, python/caffe, and scripts such as
    python/draw_net.py below FOLDER, all pointing at this installation of Python and pycaffe.

    Scripts that say $CAFFE_ROOT/build/tools/caffe, or put $CAFFE_ROOT/python on Python's path, work with
    FOLDER as CAFFE_ROOT. Files of another Caffe are never overwritten.
    """
    try:
        write(folder)
    except OSError as error:
        raise CaffeError(f"cannot write {error.filename or folder}: {error.strerror}") from error
    click.echo(f"Wrote build, .build_release, python and tools/extra. CAFFE_ROOT={folder.resolve()}")


def write(folder: Path) -> None:
    """Write the tree, again if need be. Raises CaffeError when something else is there."""
    package = Path(caffe.__file__).parent
    link = folder / "python" / "caffe"
    if os.path.lexists(link) and not link.is_symlink():
        raise CaffeError(f"{link} exists and is not of this command's making; choose another folder")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(package, target_is_directory=True)
    for build in (folder / "build", folder / ".build_release"):
        for name, command in _PROGRAMS.items():
            _write_programs(build / "tools" / name, command)
        for example, name in _EXAMPLES.items():
            _write_programs(build / "examples" / example / name, name)
    for script, words in _SCRIPTS.items():
        _write_script(folder / script, words)


def _write_programs(path: Path, command: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    for spelled in (path, path.with_name(f"{path.name}.bin")):
        _write_program(spelled, command)


def _write_script(path: Path, command: list[str]) -> None:
    """A Python script, which gives way to the interpreter of this installation."""
    argv = [sys.executable, "-P", "-m", "caffe_tools", *command]
    _write(
        path,
        f"#!/usr/bin/env python3\n{_MARK}\nimport os, sys\nos.execv({argv[0]!r}, {argv!r} + sys.argv[1:])\n",
    )


def _write_program(path: Path, command: str) -> None:
    """A shell script; -P keeps a folder `caffe` in the working directory from being taken for the package."""
    python = shlex.quote(sys.executable)
    _write(path, f'#!/bin/sh\n{_MARK}\nexec {python} -P -m caffe_tools {command} "$@"\n')


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    ours = os.path.lexists(path) and not path.is_symlink() and _MARK in path.read_text(errors="replace")
    if os.path.lexists(path) and not ours:
        raise CaffeError(f"{path} exists and is not of this command's making; choose another folder")
    path.write_text(text)
    path.chmod(0o755)
