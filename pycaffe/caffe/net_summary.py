"""What a net is made of, in numbers: shapes, parameters, multiply-adds of each layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .layer import Layer

if TYPE_CHECKING:
    from .net import Net


@dataclass(frozen=True)
class LayerSummary:
    """One layer. parameters: how many numbers it learns or keeps; those shared with a layer before it count
    there. multiply_adds: of one forward pass over the batch, for layers that multiply by weights; 0 for all
    others, whose work is a few operations for each number."""

    name: str
    type: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    top_shapes: tuple[tuple[int, ...], ...]
    param_shapes: tuple[tuple[int, ...], ...]
    parameters: int
    multiply_adds: int


Shapes = Sequence[tuple[int, ...]]


def _per_position(layer: Layer, bottoms: Shapes, tops: Shapes) -> int:
    """Convolution: each weight once for every position of each top."""
    axis = layer.layer_param.convolution_param.axis
    places = sum(math.prod(top[:axis]) * math.prod(top[axis + 1 :]) for top in tops)
    return math.prod(layer.blobs[0].shape) * places


def _per_position_below(layer: Layer, bottoms: Shapes, tops: Shapes) -> int:
    """Deconvolution: each weight once for every position of each bottom."""
    return _per_position(layer, tops, bottoms)


def _per_row(layer: Layer, bottoms: Shapes, tops: Shapes) -> int:
    """InnerProduct: each weight once for every row."""
    weights = math.prod(layer.blobs[0].shape)
    outputs = layer.layer_param.inner_product_param.num_output
    return weights * sum(math.prod(top) // outputs for top in tops if outputs)


def _per_step(layer: Layer, bottoms: Shapes, tops: Shapes) -> int:
    """RNN and LSTM: each weight once for every step and stream; those of a static input once a stream."""
    steps, streams = bottoms[0][:2]
    hidden = {"LSTM": 2, "RNN": 1}[layer.type] if layer.layer_param.recurrent_param.expose_hidden else 0
    weights = sum(blob.count for blob in layer.blobs if blob.num_axes > 1)
    static = layer.blobs[2].count if len(bottoms) - hidden > 2 else 0
    return (weights - static) * steps * streams + static * streams


_MULTIPLY_ADDS: dict[str, Callable[[Layer, Shapes, Shapes], int]] = {
    "Convolution": _per_position,
    "Deconvolution": _per_position_below,
    "InnerProduct": _per_row,
    "LSTM": _per_step,
    "RNN": _per_step,
}


def summarize(net: Net) -> list[LayerSummary]:
    """The net's layers in order, without the splits that it puts in by itself."""
    counted: set[int] = set()
    rows = []
    blobs, names = net._blobs, net._blob_names
    for i, layer in enumerate(net.layers):
        if layer.type == "Split" and layer.name.endswith("_split"):
            continue
        own = [blob for blob in layer.blobs if id(blob.data_mem) not in counted]
        counted.update(id(blob.data_mem) for blob in own)
        bottoms, tops = net._bottom_ids(i), net._top_ids(i)
        below, above = ([blobs[k].shape for k in ids] for ids in (bottoms, tops))
        work = _MULTIPLY_ADDS.get(layer.type)
        rows.append(
            LayerSummary(
                layer.name,
                layer.type,
                tuple(names[k] for k in bottoms),
                tuple(names[k] for k in tops),
                tuple(above),
                tuple(blob.shape for blob in layer.blobs),
                sum(blob.count for blob in own),
                work(layer, below, above) if work and layer.blobs else 0,
            )
        )
    return rows


def shape_text(shape: Sequence[int]) -> str:
    """64×1×28×28"""
    return "×".join(map(str, shape)) or "scalar"


def amount_text(number: float) -> str:
    """61.1 M: three digits and a unit."""
    for unit in ("", " k", " M", " G"):
        if number < 999.5:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g} T"


def table(net: Net) -> list[tuple[str, ...]]:
    """Rows of text: a heading, one for each layer, and the sums."""
    rows = summarize(net)
    lines = [("layer", "type", "tops", "shape", "parameters", "multiply-adds")]
    lines += [
        (
            row.name,
            row.type,
            ", ".join(row.tops),
            ", ".join(map(shape_text, row.top_shapes)),
            f"{row.parameters:,}" if row.parameters else "",
            amount_text(row.multiply_adds) if row.multiply_adds else "",
        )
        for row in rows
    ]
    parameters, work = sum(row.parameters for row in rows), sum(row.multiply_adds for row in rows)
    lines.append((f"{len(rows)} layers", "", "", "", f"{parameters:,}", amount_text(work)))
    return lines
