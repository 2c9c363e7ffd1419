"""caffe time: how long each layer of a model takes, forward and backward."""

from __future__ import annotations

import logging
from time import perf_counter

import click

from caffe.errors import CaffeError
from caffe.net import TEST, TRAIN, Net

from .flags import Flags, brew_command, choose_device, positive_iterations
from .memory import peak_memory_lines

log = logging.getLogger("caffe.tools")

_PHASES = {"": TRAIN, "TRAIN": TRAIN, "TEST": TEST}


@brew_command("time", "model", "iterations", "phase", "gpu", "level", "stage")
def command(flags: Flags) -> None:
    """Time -model, layer by layer, over -iterations forward and backward passes, in the TRAIN phase
    unless -phase says TEST."""
    if not flags.model:
        raise click.UsageError("Need a model definition to time. (-model FILE)")
    if flags.phase not in _PHASES:
        raise click.UsageError(f'-phase must be "TRAIN" or "TEST", not "{flags.phase}"')
    iterations = positive_iterations(flags)
    choose_device(flags.gpu)
    net = Net(flags.model, _PHASES[flags.phase], level=flags.level, stages=flags.stages)
    whole = _whole_passes(net, iterations)
    # The first pass allocates memory and fills caches: it is not counted.
    log.info("Performing Forward")
    log.info("Initial loss: %g", net.run_forward())
    log.info("Performing Backward")
    net.run_backward()

    log.info("*** Benchmark begins ***")
    log.info("Testing for %d iterations.", iterations)
    begun = perf_counter()
    forward, backward = [0.0] * len(net.layers), [0.0] * len(net.layers)
    for i in range(iterations):
        before = perf_counter()
        _add_times(net, forward, backward)
        log.info("Iteration: %d forward-backward time: %g ms.", i + 1, 1e3 * (perf_counter() - before))
    total = perf_counter() - begun

    log.info("Average time per layer: ")
    for layer, there, back in zip(net.layers, forward, backward, strict=True):
        log.info("%10s\tforward: %g ms.", layer.name, 1e3 * there / iterations)
        log.info("%10s\tbackward: %g ms.", layer.name, 1e3 * back / iterations)
    log.info("Average Forward pass: %g ms.", 1e3 * sum(forward) / iterations)
    log.info("Average Backward pass: %g ms.", 1e3 * sum(backward) / iterations)
    log.info("Average Forward-Backward: %g ms.", 1e3 * total / iterations)
    log.info("Total Time: %g ms.", 1e3 * total)
    log.info("*** Benchmark ends ***")
    for line in whole:
        log.info("%s", line)


def _whole_passes(net: Net, iterations: int) -> list[str]:
    """How long passes take where nobody looks between the layers, so that engines may join layers and layers
    use each other's memory; and how much memory that needs. In lines."""
    backward = any(net._wiring.layer_need_backward)
    # A net that keeps no blobs runs backward in the TRAIN phase only.
    net.keep_blobs, net.keep_diffs = backward and net.phase == TEST, False
    times: list[list[float]] = [[], []]
    for _ in range(iterations + 1):
        for run, spent in zip((net.run_forward, net.run_backward)[: 1 + backward], times, strict=False):
            begun = perf_counter()
            run()
            spent.append(perf_counter() - begun)
    lines = [
        f"Whole {name} pass: {1e3 * sum(spent[1:]) / iterations:g} ms."
        for name, spent in zip(("Forward", "Backward"), times, strict=True)
        if spent
    ]
    net.keep_blobs = net.keep_diffs = True
    return [*lines, *peak_memory_lines(net)]


def _add_times(net: Net, forward: list[float], backward: list[float]) -> None:
    """One pass there and back, each layer by itself; what each takes is added to its place."""
    run, needed, step = net.run, net._wiring.layer_need_backward, None
    run.sub_iteration += 1
    try:
        for i, step in enumerate(net._steps):
            begun = perf_counter()
            step.forward(run)
            forward[i] += perf_counter() - begun
        for i in reversed(range(len(net._steps))):
            step = net._steps[i]
            if needed[i]:
                begun = perf_counter()
                step.backward(run)
                backward[i] += perf_counter() - begun
    except CaffeError as error:
        net._place(error, step)
        raise
