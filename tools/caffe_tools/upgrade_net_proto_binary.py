"""upgrade_net_proto_binary INPUT OUTPUT: a caffemodel of any age, written in the current format."""

from __future__ import annotations

import logging

import click

from caffe import proto_text
from caffe.atomic_file import atomic_write
from caffe.errors import ProtoError
from caffe.proto.caffe_pb2 import NetParameter

from . import upgrade_files

_log = logging.getLogger("caffe")


@click.command("upgrade_net_proto_binary")
@click.argument("input")
@click.argument("output")
def command(input: str, output: str) -> None:
    """Upgrade the binary net or weights INPUT (V0, V1 or current) and write it to OUTPUT."""
    # Whole, not through caffe.wire: a parameter keeps its fields as they are (legacy shapes, doubles).
    net = proto_text.read_binary(input, NetParameter)
    if not net.ByteSize():
        raise ProtoError(f"{input}: the file is empty: there is no net in it")
    complete = upgrade_files.upgrade(net, input)
    try:
        with atomic_write(output) as file:
            file.write(net.SerializeToString())
    except OSError as error:
        raise ProtoError(f"{output}: cannot be written: {error.strerror}") from error
    _log.info("Wrote upgraded NetParameter binary proto to %s", output)
    if not complete:
        raise upgrade_files.incomplete(input, output)
