"""`caffe <command> <flags>`, and the original's separate tools, which are commands too.

Exit status: 0 done, 1 an error, 2 a command line that means nothing, 130 ended by Ctrl-C. An error is
one message on stderr; --debug shows where it came from.
"""

from __future__ import annotations

import importlib
import sys
import textwrap
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from caffe import __version__, logs
from caffe.errors import CaffeError, closest

from . import deprecated, gflags
from .flags import brew_options, log_options


@dataclass(frozen=True)
class Entry:
    """A command: the module that holds its click command as `command`, and a line of help."""

    module: str
    help: str


BREW = {
    "train": Entry("train", "train or finetune a model"),
    "test": Entry("test", "score a model"),
    "device_query": Entry("device_query", "show what this installation can run on"),
    "time": Entry("time", "benchmark model execution time"),
}
TOOLS = {
    "convert_imageset": Entry("convert_imageset", "put a list of images into a database"),
    "compute_image_mean": Entry("compute_image_mean", "mean of the images of a database"),
    "extract_features": Entry("extract_features", "write blobs of a net into databases"),
    "upgrade_net_proto_text": Entry("upgrade_net_proto_text", "upgrade a net prototxt to the current format"),
    "upgrade_net_proto_binary": Entry(
        "upgrade_net_proto_binary", "upgrade a caffemodel to the current format"
    ),
    "upgrade_solver_proto_text": Entry("upgrade_solver_proto_text", "upgrade a solver prototxt"),
    "shim": Entry("shim", "write a tree build/tools, python/caffe as scripts expect it"),
}
COMMANDS = {**BREW, **TOOLS}


def _switch(help: str, *names: str) -> click.Option:
    return click.Option(names, type=click.BOOL, default=False, help=help)


_DEBUG = _switch("Show the traceback of an error.", "-debug", "--debug")
_HELP = _switch("Show help and exit.", "-help", "--help", "-helpshort", "-helpfull", "-h")
_VERSION = _switch("Show the version and exit.", "-version", "--version")


def main() -> None:
    """The console script `caffe`."""
    sys.exit(run(sys.argv[1:]))


def convert_imageset() -> None:
    sys.exit(run(sys.argv[1:], "convert_imageset"))


def compute_image_mean() -> None:
    sys.exit(run(sys.argv[1:], "compute_image_mean"))


def extract_features() -> None:
    sys.exit(run(sys.argv[1:], "extract_features"))


def upgrade_net_proto_text() -> None:
    sys.exit(run(sys.argv[1:], "upgrade_net_proto_text"))


def upgrade_net_proto_binary() -> None:
    sys.exit(run(sys.argv[1:], "upgrade_net_proto_binary"))


def upgrade_solver_proto_text() -> None:
    sys.exit(run(sys.argv[1:], "upgrade_solver_proto_text"))


def run(argv: Sequence[str], tool: str | None = None) -> int:
    """Run a command line; returns the exit status. tool: the command, where the program's name says it."""
    debug = any(word in ("-debug", "--debug") for word in argv)
    try:
        _run(list(argv), tool)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as exit:
        return exit.exit_code
    except click.UsageError as error:
        return _failed(tool, error.format_message(), 2, debug)
    except CaffeError as error:
        return _failed(tool, str(error), 1, debug)
    except KeyboardInterrupt:
        return _failed(tool, "interrupted", 130, debug)
    except MemoryError as error:
        text = f"out of memory: {str(error) or 'no more can be had'}. A smaller batch_size helps"
        return _failed(tool, text, 1, debug)
    except BrokenPipeError:  # stdout: whoever read it has seen enough
        logs.abandon_streams()
        return 1
    except Exception as error:
        return _failed(tool, _unexpected(error), 1, debug)


def _failed(tool: str | None, message: str, status: int, debug: bool) -> int:
    if debug:
        message = f"{traceback.format_exc()}{message}"
    logs.StderrHandler().write(f"{tool or 'caffe'}: error: {message}")
    return status


def _unexpected(error: Exception) -> str:
    """A fault of this program, or of a user's Python layer, which then has a note of the layer's name."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    lines = [f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())]
    lines.append(f"at {place.filename}:{place.lineno}, in {place.name}; --debug shows the way there")
    return "\n".join(lines)


def _run(argv: list[str], tool: str | None) -> None:
    common = [*log_options(), _DEBUG, _HELP, _VERSION]
    if argv[:1] == ["help"] and tool is None:
        argv = [*argv[1:], "--help"]
    name = tool
    if name is None:
        flags = gflags.table([*brew_options(), *common])
        name, argv = gflags.split_command(argv, COMMANDS, flags)
        if name is None:
            values, _ = gflags.parse(argv, flags)
            click.echo(f"caffe version {__version__}" if values.get("version") == ["true"] else root_help())
            return
    command, program, argv = _command(name, argv, gflags.table(common))
    program = program if tool else f"caffe {program}"
    own = gflags.table(command.params)
    flags = {**gflags.table(common), **own}
    values, words = gflags.parse(argv, flags, tool or "caffe")
    mine = {flag: values.pop(flag) for flag in [*values] if flag in own}
    settings = _common_settings(common, gflags.spell(values, [], flags))
    version, help = settings.pop("version"), settings.pop("help")
    if version:
        click.echo(f"{tool or 'caffe'} version {__version__}")
    elif help:
        click.echo(command.get_help(click.Context(command, info_name=program)))
    else:
        settings.pop("debug")
        logs.install(logs.LogOptions(**settings), program=tool or "caffe")
        logs.logger.propagate = False
        # A training that diverges is told of once, in words; NumPy's warnings would repeat it.
        with np.errstate(all="ignore"):
            command.main(gflags.spell(mine, words, flags), prog_name=program, standalone_mode=False)


def _common_settings(common: list[click.Option], arguments: list[str]) -> dict[str, Any]:
    parser = click.Command("caffe", params=list(common), add_help_option=False)
    return parser.make_context("caffe", arguments).params


def _command(name: str, argv: list[str], flags: gflags.Table) -> tuple[click.Command, str, list[str]]:
    """The click command of that name, what it is called, and the rest of argv. In a group, the next
    word chooses."""
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
            break
        if word not in command.commands:
            known = f"{closest(word, command.commands)} (known: {', '.join(command.commands)})"
            raise click.UsageError(f"caffe {name}: unknown: {word}{known}")
        command, name, argv = command.commands[word], f"{name} {word}", rest
    return command, name, argv


def _load(name: str) -> click.Command:
    module = f"{__package__}.{COMMANDS[name].module}"
    try:
        return importlib.import_module(module).command
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise CaffeError(f"{name} is not part of this version") from None


def root_help() -> str:
    """The help of the original's layout, with what came to it."""

    def listed(entries: dict[str, Entry]) -> str:
        width = max(15, *map(len, entries))
        return "\n".join(f"  {name:<{width}} {entry.help}" for name, entry in entries.items())

    def described(options: Sequence[click.Option]) -> str:
        return "\n".join(_describe(option) for option in options)

    return (
        "caffe: command line brew\nusage: caffe <command> <args>\n\n"
        f"commands:\n{listed(BREW)}\n\ntools:\n{listed(TOOLS)}\n\n"
        f"  Flags of train, test, time and device_query:\n{described(brew_options())}\n\n"
        f"  Flags of every command:\n{described([*log_options(), _DEBUG, _HELP, _VERSION])}\n"
        "    -flagfile (Read flags from files, separated by ','.) type: string"
    )


def _describe(option: click.Option) -> str:
    kind = {"text": "string", "integer": "int32", "boolean": "bool"}[option.type.name]
    default = f'"{option.default}"' if kind == "string" else str(option.default).lower()
    text = f"-{option.opts[0].lstrip('-')} ({option.help}) type: {kind}"
    if option.default is not None:
        text += f" default: {default}"
    return textwrap.fill(text, 80, initial_indent="    ", subsequent_indent="      ")
