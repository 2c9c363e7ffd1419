"""What a net logs of each layer with `debug_info: true`, and where a nan or an infinity came from."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from .blob import Blob
from .errors import NetError

if TYPE_CHECKING:
    from .layer import Layer
    from .net import Net

log = logging.getLogger("caffe.net")


def log_forward(net: Net, index: int) -> None:
    """Mean absolute value of a layer's tops and parameters, after its forward."""
    layer, wiring = net.layers[index], net._wiring
    for i in wiring.top_ids[index]:
        name, blob = wiring.blob_names[i], wiring.blobs[i]
        log.info(
            "    [Forward] Layer %s, top blob %s data: %g", layer.name, name, _mean(blob.asum_data(), blob)
        )
    for j, blob in enumerate(layer.blobs):
        name = _param_name(layer, j)
        log.info(
            "    [Forward] Layer %s, param blob %s data: %g", layer.name, name, _mean(blob.asum_data(), blob)
        )


def log_backward(net: Net, index: int) -> None:
    """Mean absolute gradient of a layer's bottoms and parameters, after its backward."""
    layer, wiring = net.layers[index], net._wiring
    for i, wanted in zip(wiring.bottom_ids[index], wiring.bottom_need_backward[index], strict=True):
        if wanted:
            name, blob = wiring.blob_names[i], wiring.blobs[i]
            mean = _mean(blob.asum_diff(), blob)
            log.info("    [Backward] Layer %s, bottom blob %s diff: %g", layer.name, name, mean)
    for j, (blob, wanted) in enumerate(zip(layer.blobs, layer.param_propagate_down, strict=True)):
        if wanted:
            name, mean = _param_name(layer, j), _mean(blob.asum_diff(), blob)
            log.info("    [Backward] Layer %s, param blob %s diff: %g", layer.name, name, mean)


def log_totals(net: Net) -> None:
    """Norms over all parameters, after a whole backward pass."""
    blobs = [p.blob for p in net.learnable]
    log.error(
        "    [Backward] All net params (data, diff): L1 norm = (%g, %g); L2 norm = (%g, %g)",
        sum(b.asum_data() for b in blobs),
        sum(b.asum_diff() for b in blobs),
        math.sqrt(sum(b.sumsq_data() for b in blobs)),
        math.sqrt(sum(b.sumsq_diff() for b in blobs)),
    )


def first_nonfinite(net: Net) -> str:
    """In words, where the first nan or infinity stands after a forward pass, in the order in which layers
    run, and what people do about it there; "" when all numbers are finite. Blobs that the net has given up
    cannot be asked; where they come before the place that is found, that is said."""
    wiring = net._wiring
    unseen: dict[str, None] = {}
    for i, layer in enumerate(net.layers):
        who = f"layer '{layer.name}' ({layer.type})"
        for j, blob in enumerate(layer.blobs):
            if found := _nonfinite(blob):
                return (
                    f"{who}, parameter {_param_name(layer, j)}: {found}. An earlier update made it so. "
                    "What usually helps: a base_lr ten times smaller, warming up, or clip_gradients"
                )
        for k in wiring.top_ids[i]:
            name = wiring.blob_names[k]
            try:
                found = _nonfinite(wiring.blobs[k])
            except NetError:
                unseen[name] = None
                continue
            if found:
                later = [net.layers[m].name for m in range(i + 1, len(net.layers)) if k in wiring.top_ids[m]]
                also = f", or in {', '.join(later)}, which work on it in place" if later else ""
                return f"{who}, top blob '{name}'{also}: {found}. {_advice(layer)}{_given_up(unseen)}"
    return ""


def nonfinite_parameter(net: Net) -> str:
    """In words, the first learned parameter with a nan or infinity; "" when there is none. Reads the
    parameters as they lie: cheap enough to be asked from time to time."""
    for param in net.learnable:
        numbers = param.blob.data_mem.numbers()
        if numbers is None or not numbers.size:
            continue
        if not (np.isfinite(numbers.min()) and np.isfinite(numbers.max())):
            return first_nonfinite(net)
    return ""


def _given_up(names: Iterable[str]) -> str:
    known = ", ".join(f"'{name}'" for name in names)
    if not known:
        return ""
    return f". Not looked at, since given up before (with `net.keep_blobs = True` they are not): {known}"


def _advice(layer: Layer) -> str:
    if not layer.layer_param.bottom:
        return "The input itself holds it: look at the data, and at its mean and scale"
    return (
        "What usually helps: a base_lr ten times smaller, clip_gradients, a smaller loss_weight, another "
        "weight_filler, inputs scaled to about -1 … 1"
    )


def _nonfinite(blob: Blob) -> str:
    data = blob.cpu_data()
    bad = ~np.isfinite(data)
    if not bad.any():
        return ""
    first = np.unravel_index(int(np.argmax(bad)), data.shape) if data.ndim else ()
    at = f" at [{', '.join(str(int(i)) for i in first)}]" if first else ""
    return f"{data[first]:g}{at} ({int(bad.sum())} of {data.size} numbers)"


def _mean(total: float, blob: Blob) -> float:
    return total / blob.count if blob.count else math.nan


def _param_name(layer: Layer, index: int) -> str:
    specs = layer.layer_param.param
    return specs[index].name if index < len(specs) and specs[index].name else str(index)
