"""caffe net: what a net is made of, drawn, and compared with another."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from caffe.net import TEST, TRAIN, Net
from caffe.net_diff import differences, read_net_file
from caffe.net_summary import summarize, table

from . import draw_net
from .quiet import shapes_only

_PHASES = {"TRAIN": TRAIN, "TEST": TEST}


@click.group("net")
def command() -> None:
    """Look at nets."""


command.add_command(draw_net.command, "draw")


@command.command("summary", short_help="shapes, parameters and multiply-adds of each layer")
@click.argument("model", type=click.Path())
@click.option(
    "-phase", "--phase", type=click.Choice([*_PHASES]), default="TEST", show_default=True, help="The phase."
)
@click.option("-json", "--json", "as_json", is_flag=True, help="As JSON: a list of layers.")
def summary(model: str, phase: str, as_json: bool) -> None:
    """Print, for each layer of the prototxt MODEL, its tops and their shapes, its parameters and the
    multiply-adds of a forward pass over one batch."""
    with shapes_only():
        net = Net(model, _PHASES[phase])
    if as_json:
        click.echo(json.dumps([asdict(row) for row in summarize(net)], indent=1))
        return
    rows = table(net)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            f"{text:<{w}}" if k < 4 else f"{text:>{w}}"
            for k, (text, w) in enumerate(zip(row, widths, strict=True))
        ]
        click.echo("  ".join(cells).rstrip())


@command.command("diff", short_help="what distinguishes two nets")
@click.argument("first", type=click.Path())
@click.argument("second", type=click.Path())
def diff(first: str, second: str) -> None:
    """Print what distinguishes two nets, prototxts or caffemodels: layers (-, +), and where both have one,
    its fields and, between two caffemodels, its parameters."""
    lines = differences(read_net_file(first), read_net_file(second))
    click.echo("\n".join(lines) if lines else "The nets are the same.")
