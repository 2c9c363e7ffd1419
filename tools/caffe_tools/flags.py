"""The flags: those of the original's caffe tool, and those that every command takes.

As in the original, `caffe train`, `test`, `time` and `device_query` take each other's flags, so that one
flag file serves them all; a flag that does nothing there is warned of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import click

from caffe import context
from caffe.errors import CaffeError, EngineError
from caffe.kernels import gpu_absence
from caffe.logs import LogOptions

log = logging.getLogger("caffe.tools")


@dataclass(frozen=True)
class Flags:
    """What was typed, or the defaults."""

    gpu: str = ""
    iterations: int = 50
    level: int | None = None
    model: str = ""
    phase: str = ""
    sighup_effect: str = "snapshot"
    sigint_effect: str = "stop"
    snapshot: str = ""
    solver: str = ""
    stage: str = ""
    weights: str = ""

    @property
    def stages(self) -> list[str]:
        return [stage for stage in self.stage.split(",") if stage]


HELP = {
    "gpu": "Run in GPU mode on the device of this number; train takes several: 0,1 or all.",
    "iterations": "The number of iterations to run.",
    "level": "Network level.",
    "model": "The model definition, a prototxt.",
    "phase": "Network phase, TRAIN or TEST; only used for 'time'.",
    "sighup_effect": "Action to take when a SIGHUP signal is received: snapshot, stop or none.",
    "sigint_effect": "Action to take when SIGINT (Ctrl-C) or SIGTERM is received: snapshot, stop or none.",
    "snapshot": "The .solverstate to resume training from.",
    "solver": "The solver definition, a prototxt.",
    "stage": "Network stages (not to be confused with phase), separated by ','.",
    "weights": "The pretrained weights to begin with, separated by ','; not together with snapshot.",
}

_LOG_HELP = {
    "logtostderr": "The log goes to stderr and to no file.",
    "alsologtostderr": "The log goes to stderr beside the files in log_dir.",
    "stderrthreshold": "With alsologtostderr=false: severity from which on stderr shows messages (0 to 3).",
    "minloglevel": "Messages below this severity are dropped: 0 INFO, 1 WARNING, 2 ERROR, 3 FATAL.",
    "v": "1 or more: verbose messages too.",
    "log_dir": "Folder for log files; a link caffe.INFO leads to the latest.",
}


class _Int32(click.types.IntParamType):
    """An int32 flag of gflags."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not -(2**31) <= number < 2**31:
            self.fail(f"{value!r} does not lie between -2147483648 and 2147483647.", param, ctx)
        return number


_INT32 = _Int32()


def _option(name: str, default: Any, help: str, hidden: bool = False) -> click.Option:
    kind = {bool: click.BOOL, int: _INT32}.get(type(default), click.STRING)
    return click.Option([f"-{name}", f"--{name}", name], default=default, type=kind, help=help, hidden=hidden)


def tool_option(
    name: str, default: Any, help: str, kind: type | click.ParamType | None = None
) -> Callable[[Any], Any]:
    """Decorator: a flag of one of the separate tools, as -name or --name; kind: its type, by default that of
    the default."""
    kind = kind or type(default)
    parameter = _INT32 if kind is int else kind
    return click.option(f"-{name}", f"--{name}", name, default=default, type=parameter, help=help)


def log_options() -> list[click.Option]:
    """glog's flags, for every command; what the environment says is their default."""
    environment = LogOptions.from_environment()
    return [_option(f.name, getattr(environment, f.name), _LOG_HELP[f.name]) for f in fields(LogOptions)]


def brew_options(shown: Sequence[str] | None = None) -> list[click.Option]:
    """The flags of the original's tool. shown: those that a command's help shows."""
    options = []
    for field in fields(Flags):
        hidden = shown is not None and field.name not in shown
        options.append(_option(field.name, field.default, HELP[field.name], hidden))
    next(option for option in options if option.name == "level").type = _INT32
    return options


def brew_command(name: str, *uses: str) -> Callable[[Callable[[Flags], None]], click.Command]:
    """Decorator: a command with the original's flags. uses: the flags that mean something to it."""

    def decorate(function: Callable[[Flags], None]) -> click.Command:
        def callback(**values: Any) -> None:
            source = click.get_current_context().get_parameter_source
            for flag in values:
                given = source(flag) is click.core.ParameterSource.COMMANDLINE
                if given and flag not in uses and values[flag] != getattr(Flags, flag):
                    log.warning("the flag -%s has no effect in caffe %s", flag, name)
            function(Flags(**values))

        return click.Command(name, params=list(brew_options(uses)), callback=callback, help=function.__doc__)

    return decorate


def positive_iterations(flags: Flags) -> int:
    if flags.iterations < 1:
        raise click.UsageError(f"-iterations must be at least 1, not {flags.iterations}")
    return flags.iterations


def choose_device(gpu: str, solver_mode_gpu: bool = False, device_id: int = 0) -> None:
    """Set the mode, and log it. gpu: the flag. solver_mode_gpu: a prototxt asks for the GPU, which is a
    wish: without a GPU it is warned of and the CPU is used. The flag is an order: raises EngineError
    with the reason and the cure."""
    if gpu:
        device, reason = _ordinal(gpu), ""
    elif solver_mode_gpu:
        device = device_id
        reason = gpu_absence()
        if reason:
            log.warning("solver_mode: GPU, but %s. Running on the CPU", reason)
    else:
        device, reason = 0, "not wanted"
    if reason:
        context.set_mode_cpu()
        log.info("Use CPU.")
        return
    log.info("Use GPU with device ID %d", device)
    context.set_device(device)
    context.set_mode_gpu()


def device_list(gpu: str) -> list[int]:
    """The devices that -gpu names: one, several with commas between them, or all. Raises click.UsageError for
    what is no such list, EngineError when one of them is not there."""
    names = gpu.split(",")
    if gpu != "all" and not all(name.isdecimal() for name in names):
        raise click.UsageError(
            f"-gpu must be the number of a device, numbers with commas, or all, not '{gpu}'"
        )
    devices = [] if gpu == "all" else [int(name) for name in names]
    if len(set(devices)) < len(devices):
        raise click.UsageError(f"-gpu {gpu}: each device can be named once")
    reason = gpu_absence()
    if reason:
        raise EngineError(f"-gpu {gpu}: {reason}. Leave -gpu out to run on the CPU")
    from caffe.engines.cuda.driver import device_count, missing

    count = device_count()
    for device in devices:
        if device >= count:
            raise EngineError(f"-gpu {gpu}: {missing(device)}")
    return list(range(count)) if gpu == "all" else devices


def _ordinal(gpu: str) -> int:
    devices = device_list(gpu)
    if len(devices) > 1:
        raise CaffeError(f"-gpu {gpu}: only caffe train uses several GPUs; give a single number")
    return devices[0]
