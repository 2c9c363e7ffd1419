"""caffe device_query: what this installation is, and what it can run on."""

from __future__ import annotations

import platform
from typing import Any

import click
import numpy as np

from caffe import context, kernels, version
from caffe.execution import cpu_threads

from .flags import Flags, brew_command, device_list


@brew_command("device_query", "gpu")
def command(flags: Flags) -> None:
    """Show the versions, the engines and why one is absent, and the threads. With -gpu: an error unless those
    devices are there."""
    if flags.gpu:
        context.set_device(device_list(flags.gpu)[0])
    for name, text in report():
        click.echo(f"{name + ':':<24}{text}")


def report() -> list[tuple[str, str]]:
    """(what, its state) in the order of display."""
    lines = [
        ("pycaffe", version.DISTRIBUTION),
        ("compatible with Caffe", version.__version__),
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("NumPy", f"{np.__version__}, BLAS: {_blas()}"),
        ("CPU threads", str(cpu_threads())),
    ]
    for name in kernels.engine_names():
        if name == kernels.REFERENCE:
            state = "ready (NumPy)"
        elif kernels.engine_ready(name):
            state = f"ready {kernels.engine_description(name)}".rstrip()
        else:
            state = f"absent: {kernels.engine_reason(name)}"
        lines.append((f"engine {name}", state))
    return lines


def _blas() -> str:
    config: Any = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
