"""extract_features WEIGHTS MODEL BLOB,... DATABASE,... BATCHES DB_TYPE: blobs of a net into databases."""

from __future__ import annotations

import logging
import math
import os

import click
import numpy as np

from caffe.datum import serialize_floats
from caffe.errors import NetError, closest
from caffe.net import TEST, Net

from .count_bar import count_bar
from .flags import choose_device, tool_option
from .new_databases import NewDatabase, new_databases, refuse_existing

log = logging.getLogger("caffe.tools")

_LOG_EVERY = 1000


@click.command("extract_features")
@click.argument("weights")
@click.argument("model")
@click.argument("blobs", metavar="BLOB[,BLOB ...]")
@click.argument("databases", metavar="DATABASE[,DATABASE ...]")
@click.argument("batches", type=click.IntRange(min=1))
@click.argument("db_type")
@click.argument("mode", type=click.Choice(["CPU", "GPU"]), default="CPU", required=False)
@click.argument("device", type=click.IntRange(min=0), default=0, required=False)
@tool_option("force", False, "Replace databases that are there already.")
def command(
    weights: str,
    model: str,
    blobs: str,
    databases: str,
    batches: int,
    db_type: str,
    mode: str,
    device: int,
    force: bool,
) -> None:
    """Run MODEL with WEIGHTS in the TEST phase for BATCHES batches, and write each BLOB into the new DATABASE
    of the same place in its list.

    Each item of a batch becomes a Datum with float_data; keys are 0000000000, 0000000001 ... DB_TYPE is
    lmdb or leveldb. All databases appear when all are complete. MODE is CPU (default) or GPU, DEVICE the
    GPU's number.
    """
    names, targets = blobs.split(","), databases.split(",")
    if len(names) != len(targets):
        raise click.UsageError(
            f"the number of blob names and dataset names must be equal: {len(names)} blobs, {len(targets)} "
            "databases"
        )
    if len(set(map(os.path.abspath, targets))) < len(targets):
        raise click.UsageError(f"each blob needs a database of its own, not {databases}")
    refuse_existing(targets, force)
    choose_device(str(device) if mode == "GPU" else "")
    net = Net(model, TEST, weights=weights)
    for name in names:
        if name not in net.blobs:
            raise NetError(
                f"Unknown feature blob name {name} in the network {model}{closest(name, net.blobs)}"
            )
    with new_databases(targets, db_type, force) as made:
        for target in targets:
            log.info("Opening dataset %s", target)
        log.info("Extracting Features")
        _extract(net, names, made, batches)
    for name, database in zip(names, made, strict=True):
        log.info("Extracted features of %d query images for feature blob %s", database.count, name)
    log.info("Successfully extracted the features!")


def _extract(net: Net, names: list[str], databases: list[NewDatabase], batches: int) -> None:
    told = False
    with count_bar(batches, "batches") as show:
        for batch in range(batches):
            net.run_forward()
            told = told or _tell_of_repetition(net, batch)
            for name, database in zip(names, databases, strict=True):
                before = database.count // _LOG_EVERY
                _put(net.blobs[name].cpu_data(), database)
                if database.count // _LOG_EVERY > before:
                    log.info(
                        "Extracted features of %d query images for feature blob %s", database.count, name
                    )
            show(batch + 1)


def _put(values: np.ndarray, database: NewDatabase) -> None:
    """Each item along the first axis; axes beyond the fourth are joined to the fourth."""
    count = values.shape[0] if values.ndim else 1
    channels, height = (*values.shape[1:3], 1, 1)[:2]
    shape = (count, channels, height, math.prod(values.shape[3:]))
    for i, value in enumerate(serialize_floats(values.reshape(shape)), database.count):
        database.put(f"{i:010d}", value)


def _tell_of_repetition(net: Net, batch: int) -> bool:
    """Warns when a layer's data have begun anew: those features are there already."""
    for layer in net.layers:
        if getattr(layer, "repeats", False):
            log.warning(
                "In batch %d, layer '%s' (%s) has begun its data anew: from here on, features of the same "
                "items are written again. Fewer batches would do",
                batch + 1,
                layer.name,
                layer.type,
            )
            return True
    return False
