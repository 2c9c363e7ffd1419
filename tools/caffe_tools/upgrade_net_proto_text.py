"""upgrade_net_proto_text INPUT OUTPUT: a net prototxt of any age, written in the current format."""

from __future__ import annotations

import logging

import click

from caffe import proto_text

from . import upgrade_files

_log = logging.getLogger("caffe")


@click.command("upgrade_net_proto_text")
@click.argument("input")
@click.argument("output")
def command(input: str, output: str) -> None:
    """Upgrade the net prototxt INPUT (V0, V1 or current) and write it to OUTPUT."""
    net = proto_text.read_net(input)
    complete = upgrade_files.upgrade(net, input)
    proto_text.write(net, output)
    _log.info("Wrote upgraded NetParameter text proto to %s", output)
    if not complete:
        raise upgrade_files.incomplete(input, output)
