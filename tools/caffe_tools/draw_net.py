"""caffe draw_net (and caffe net draw): a picture of a net."""

from __future__ import annotations

import logging

import click

from caffe import draw
from caffe.errors import CaffeError
from caffe.net import TEST, TRAIN, Net
from caffe.proto.caffe_pb2 import NetParameter
from caffe.proto_text import read_net
from caffe.upgrade_proto import upgrade_net

from .quiet import shapes_only

log = logging.getLogger("caffe.tools")

_PHASES = {"TRAIN": TRAIN, "TEST": TEST, "ALL": None}


@click.command("draw_net", short_help="a picture: .svg and .html, with Graphviz also .png and .pdf")
@click.argument("input_net_proto_file", type=click.Path())
@click.argument("output_image_file", type=click.Path())
@click.option(
    "-rankdir",
    "--rankdir",
    type=click.Choice(draw.RANKDIRS),
    default="LR",
    show_default=True,
    help="The direction of the data: from left to right, top to bottom, ...",
)
@click.option(
    "-phase",
    "--phase",
    type=click.Choice([*_PHASES]),
    default="ALL",
    show_default=True,
    help="The phase whose layers are shown.",
)
@click.option("-display_lrm", "--display_lrm", is_flag=True, help="Show the learning rates' factors too.")
def command(
    input_net_proto_file: str, output_image_file: str, rankdir: str, phase: str, display_lrm: bool
) -> None:
    """Draw the net of INPUT_NET_PROTO_FILE into OUTPUT_IMAGE_FILE, in the format that its name ends with.

    A net that can be made here is drawn with shapes, parameters and multiply-adds.
    """
    definition = read_net(input_net_proto_file)
    upgrade_net(definition, input_net_proto_file)
    click.echo(f"Drawing net to {output_image_file}")
    net = _made(definition, input_net_proto_file, _PHASES[phase])
    draw.draw_net_to_file(net, output_image_file, rankdir, _PHASES[phase], display_lrm)


def _made(definition: NetParameter, path: str, phase: int | None) -> Net | NetParameter:
    """The net itself, or where that cannot be its definition. A net of all phases at once is none."""
    rules = any(
        rule.HasField("phase") for layer in definition.layer for rule in (*layer.include, *layer.exclude)
    )
    if phase is None and rules:
        return definition
    try:
        with shapes_only():
            return Net(definition, TEST if phase is None else phase, source=path)
    except CaffeError as error:
        log.warning("drawn without shapes: %s", error)
        return definition
