"""`caffe <command> <flags>`, and the original's separate tools, which are commands too.

Exit status: 0 done, 1 an error, 2 a command line that means nothing, 130 ended by Ctrl-C. An error is
one message on stderr; --debug shows where it came from.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click
import numpy as np

from caffe import __version__, context, logs
from caffe.errors import CaffeError, closest

from . import commands, gflags
from .flags import brew_options, log_options


def _switch(help: str, *names: str) -> click.Option:
    return click.Option(names, type=click.BOOL, default=False, help=help)


_DEBUG = _switch("Show the traceback of an error.", "-debug", "--debug")
_PYTHON = click.Option(
    ["-python_layers", "--python_layers"],
    type=click.BOOL,
    default=True,
    help="Let nets run their Python layers; --no-python-layers refuses files that have any.",
)
_HELP = _switch("Show help and exit.", "-help", "--help", "-helpshort", "-helpfull", "-h")
_VERSION = _switch("Show the version and exit.", "-version", "--version")


def run(argv: Sequence[str], tool: str | None = None) -> int:
    """Run a command line; returns the exit status. tool: the command, where the program's name says it."""
    debug = any(word in ("-debug", "--debug") for word in argv)
    try:
        _run(list(argv), tool)
        if sys.stdout is not None:  # it may be closed
            sys.stdout.flush()
        return 0
    except click.exceptions.Exit as exit:
        return exit.exit_code
    except click.UsageError as error:
        return _failed(tool, error.format_message(), 2, debug)
    except CaffeError as error:
        return _failed(tool, str(error), 1, debug)
    except (KeyboardInterrupt, click.exceptions.Abort):  # click's name for it
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
    common = [*log_options(), _PYTHON, _DEBUG, _HELP, _VERSION]
    if argv[:1] == ["help"] and tool is None:
        argv = [*argv[1:], "--help"]
    name = tool
    if name is None:
        flags = gflags.table([*brew_options(), *common])
        name, argv = gflags.split_command(argv, commands.COMMANDS, flags)
        if name is None:
            values = _without_command(argv, flags)
            click.echo(
                f"caffe version {__version__}"
                if values.get("version") == ["true"]
                else commands.root_help(common)
            )
            return
    command, program, argv = commands.find(name, argv, gflags.table(common))
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
        context.allow_python_layers(settings.pop("python_layers"))
        logs.install(logs.LogOptions(**settings), program=tool or "caffe")
        logs.logger.propagate = False
        # A training that diverges is told of once, in words; NumPy's warnings would repeat it.
        with np.errstate(all="ignore"):
            command.main(gflags.spell(mine, words, flags), prog_name=program, standalone_mode=False)


def _without_command(argv: list[str], flags: gflags.Table) -> dict[str, list[str]]:
    """The values of a command line that names no command; or it may do so with a dash before it."""
    try:
        return gflags.parse(argv, flags)[0]
    except click.UsageError as error:
        for word in argv:
            name = word.lstrip("-").partition("=")[0]
            known = name in flags or not word.startswith("-")
            if not known and (near := closest(name, commands.COMMANDS)):
                raise click.UsageError(
                    f"{error.message} (the command is a word without a dash{near})"
                ) from None
        raise


def _common_settings(common: list[click.Option], arguments: list[str]) -> dict[str, Any]:
    parser = click.Command("caffe", params=list(common), add_help_option=False)
    return parser.make_context("caffe", arguments).params
