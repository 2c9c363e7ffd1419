"""The commands: their names, the modules that hold them, and the help that lists them."""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Sequence

import click

from caffe.errors import CaffeError, closest

from . import deprecated, gflags
from .flags import brew_options

# Name -> a line of help. A command is the object `command` in the module of its name, imported when it
# is called.
BREW = {
    "train": "train or finetune a model",
    "test": "score a model",
    "device_query": "show what this installation can run on",
    "time": "benchmark model execution time",
}
TOOLS = {
    "convert_imageset": "put a list of images into a database",
    "compute_image_mean": "mean of the images of a database",
    "extract_features": "write blobs of a net into databases",
    "convert_mnist_data": "put MNIST's files into a database",
    "convert_mnist_siamese_data": "put random pairs of MNIST's digits into a database",
    "convert_cifar_data": "put CIFAR-10's files into databases",
    "db": "info, head, verify: look into a database",
    "upgrade_net_proto_text": "upgrade a net prototxt to the current format",
    "upgrade_net_proto_binary": "upgrade a caffemodel to the current format",
    "upgrade_solver_proto_text": "upgrade a solver prototxt to the current format",
    "data": "make databases of MNIST, Fashion-MNIST or CIFAR-10",
    "classify": "a net's output for images",
    "detect": "a net's output for windows of images",
    "draw_net": "a picture of a net",
    "net": "summary, draw, diff: look at nets",
    "log": "parse, plot: the logs of trainings as tables and curves",
    "model": "list, show, new, fetch: reference models and public weights",
    "shim": "write a tree build/tools, python/caffe as scripts expect it",
}
COMMANDS = {**BREW, **TOOLS}


def find(name: str, argv: list[str], flags: gflags.Table) -> tuple[click.Command, str, list[str]]:
    """The command of that name, what it is called, and the rest of argv; in a group, the next word chooses.

    Raises click.UsageError for an unknown name, with the closest, and for a deprecated one, with what to
    type instead.
    """
    if name in deprecated.NAMES:
        raise click.UsageError(deprecated.advice(name, argv))
    if name not in COMMANDS:
        known = "".join(f"\n\t{action}" for action in sorted(COMMANDS))
        near = closest(name, COMMANDS)
        raise click.UsageError(f"Unknown action: {name}{near}\nAvailable caffe actions:{known}")
    command = _load(name)
    while isinstance(command, click.Group):
        word, rest = gflags.split_command(argv, command.commands, flags)
        if word is None:
            if not argv:
                raise click.UsageError(f"caffe {name}: Missing command: {', '.join(command.commands)}")
            break
        if word not in command.commands:
            known = f"{closest(word, command.commands)} (known: {', '.join(command.commands)})"
            raise click.UsageError(f"caffe {name}: unknown: {word}{known}")
        command, name, argv = command.commands[word], f"{name} {word}", rest
    return command, name, argv


def _load(name: str) -> click.Command:
    module = f"{__package__}.{name}"
    try:
        return importlib.import_module(module).command
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise CaffeError(f"{name} is not part of this version") from None


def root_help(common: Sequence[click.Option]) -> str:
    """The help of the original's layout, with what came to it. common: the flags of every command."""

    def listed(entries: dict[str, str]) -> str:
        width = max(15, *map(len, entries))
        return "\n".join(f"  {name:<{width}} {help}" for name, help in entries.items())

    def described(options: Sequence[click.Option]) -> str:
        return "\n".join(_describe(option) for option in options)

    return (
        "caffe: command line brew\nusage: caffe <command> <args>\n\n"
        f"commands:\n{listed(BREW)}\n\ntools:\n{listed(TOOLS)}\n\n"
        f"  Flags of train, test, time and device_query:\n{described(brew_options())}\n\n"
        f"  Flags of every command:\n{described(common)}\n"
        "    -flagfile (Read flags from files, separated by ','.) type: string"
    )


def _describe(option: click.Option) -> str:
    kind = {"text": "string", "integer": "int32", "boolean": "bool"}[option.type.name]
    default = f'"{option.default}"' if kind == "string" else str(option.default).lower()
    text = f"-{option.opts[0].lstrip('-')} ({option.help}) type: {kind}"
    if option.default is not None:
        text += f" default: {default}"
    return textwrap.fill(text, 80, initial_indent="    ", subsequent_indent="      ")
