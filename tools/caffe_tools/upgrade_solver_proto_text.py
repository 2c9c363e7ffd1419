"""upgrade_solver_proto_text INPUT OUTPUT: a solver prototxt of any age, written in the current format."""

from __future__ import annotations

import logging

import click

from caffe import proto_text
from caffe.upgrade_proto import upgrade_solver_type

_log = logging.getLogger("caffe")


@click.command("upgrade_solver_proto_text")
@click.argument("input")
@click.argument("output")
def command(input: str, output: str) -> None:
    """Upgrade the solver prototxt INPUT and write it to OUTPUT; its snapshot_prefix stays as it is."""
    solver = proto_text.read_solver(input)
    if not upgrade_solver_type(solver, input):
        _log.error("File already in latest proto format: %s", input)
    proto_text.write(solver, output)
    _log.info("Wrote upgraded SolverParameter text proto to %s", output)
