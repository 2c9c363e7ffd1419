"""caffe test: score a trained model on its test data."""

from __future__ import annotations

import logging

import click
import numpy as np

from caffe.net import TEST, Net

from .flags import Flags, brew_command, choose_device, positive_iterations
from .memory import peak_memory_lines

log = logging.getLogger("caffe.tools")


@brew_command("test", "model", "weights", "iterations", "gpu", "level", "stage")
def command(flags: Flags) -> None:
    """Run -model in the TEST phase with -weights for -iterations batches, and log the mean of each output."""
    if not flags.model:
        raise click.UsageError("Need a model definition to score. (-model FILE)")
    if not flags.weights:
        raise click.UsageError("Need model weights to score. (-weights FILE)")
    iterations = positive_iterations(flags)
    choose_device(flags.gpu)
    # Nobody looks between the layers here: they use each other's memory.
    net = Net(
        flags.model, TEST, level=flags.level, stages=flags.stages, weights=flags.weights, keep_blobs=False
    )
    log.info("Running for %d iterations.", iterations)

    loss = 0.0
    # Outputs may change their shape from batch to batch; their values are counted through.
    sums: list[float] = []
    names: list[str] = []
    for batch in range(iterations):
        loss += net.run_forward()
        k = 0
        for name in net.outputs:
            for value in np.ravel(net.blobs[name].cpu_data()).tolist():
                if batch == 0:
                    names.append(name)
                    sums.append(value)
                else:
                    sums[k] += value
                k += 1
                log.info("Batch %d, %s = %g", batch, name, value)
    log.info("Loss: %g", loss / iterations)
    weights = net.blob_loss_weights
    for name, total in zip(names, sums, strict=True):
        mean, weight = total / iterations, weights[name]
        log.info("%s = %g%s", name, mean, f" (* {weight:g} = {weight * mean:g} loss)" if weight else "")
    for line in peak_memory_lines(net):
        log.info("%s", line)
