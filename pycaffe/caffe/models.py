"""The reference models that ship with the package: where they are, and what they cost.

    caffe.models.list()                      ['bvlc_alexnet', 'bvlc_googlenet', ...]
    caffe.models.path("vgg16")               the folder;  path("vgg16", "deploy.prototxt")  a file in it
    print(caffe.models.summary("vgg16"))     parameters and multiply-adds of each layer
    caffe.models.without_data(net, shapes)   the net with inputs in place of its data layers
"""

from __future__ import annotations

import builtins
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .blob import Blob
from .errors import DataError, NetError, closest
from .layer import Layer
from .net import Net
from .proto import caffe_pb2
from .resources import data_path
from .upgrade_proto import read_net_upgraded

# Layers without bottoms whose tops come from files, or from what a script hands over.
_DATA_TYPES = ("Data", "HDF5Data", "ImageData", "MemoryData", "WindowData")
# Their parameters are measured, not learned.
_STATISTICS = ("BatchNorm",)


def list() -> builtins.list[str]:
    """The names of the models, sorted."""
    return sorted(folder.parent.name for folder in data_path("models").glob("*/solver.prototxt"))


def path(name: str, file: str = "") -> Path:
    """The folder of a model, or a file in it: deploy.prototxt, solver.prototxt, readme.md, ...

    Read-only: `caffe model new` copies it. Raises DataError for a name or a file that there is not.
    """
    known = list()
    if name not in known:
        raise DataError(f"no model {name!r}{closest(name, known)} (known: {', '.join(known)})")
    return data_path("models", name, file)


@dataclass(frozen=True)
class LayerSummary:
    """One layer. tops: their shapes. parameters: learned numbers that no layer above has already.
    multiply_adds: for all items of the batch."""

    name: str
    type: str
    tops: tuple[tuple[int, ...], ...]
    parameters: int
    multiply_adds: int


@dataclass(frozen=True)
class Summary:
    """What a net is made of. items: in its batch (the first axis of the first input or data).
    memory: bytes of all blobs' data for that batch, parameters and gradients not counted."""

    name: str
    items: int
    memory: int
    layers: tuple[LayerSummary, ...]

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @property
    def multiply_adds(self) -> int:
        """For one item. Counted are convolutions, inner products and recurrent layers, without biases, as
        papers do."""
        return sum(layer.multiply_adds for layer in self.layers) // self.items

    def __str__(self) -> str:
        rows = [("layer", "type", "output", "parameters", "multiply-adds")]
        for x in self.layers:
            tops = " ".join("x".join(map(str, top)) or "scalar" for top in x.tops)
            rows.append((x.name, x.type, tops, f"{x.parameters:,}", f"{x.multiply_adds // self.items:,}"))
        rows.append((self.name or "in all", "", "", f"{self.parameters:,}", f"{self.multiply_adds:,}"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        align = ("<", "<", "<", ">", ">")
        lines = [
            "  ".join(f"{cell:{a}{w}}" for cell, a, w in zip(row, align, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join(lines)


def summary(net: Net | caffe_pb2.NetParameter | str | os.PathLike[str]) -> Summary:
    """Parameters and multiply-adds, computed from the shapes.

    net: a net; a definition, which is built for TEST; the name of a reference model, or the path of a
    prototxt. Raises what Net raises, and DataError for a name that is neither.
    """
    if not isinstance(net, Net):
        net = Net(_definition(net), phase=caffe_pb2.TEST)
    seen: set[int] = set()
    layers = []
    for name, layer in net.layer_dict.items():
        if layer.type == "Split":
            continue
        bottoms = [net.blobs[blob] for blob in net.bottom_names[name]]
        tops = [net.blobs[blob] for blob in net.top_names[name]]
        new = [blob for blob in layer.blobs if id(blob.data_mem) not in seen]
        seen.update(id(blob.data_mem) for blob in new)
        parameters = 0 if layer.type in _STATISTICS else sum(blob.count for blob in new)
        shapes = tuple(tuple(top.shape) for top in tops)
        layers.append(
            LayerSummary(name, layer.type, shapes, parameters, _multiply_adds(layer, bottoms, tops))
        )
    first = next(iter(net.blobs.values()), None)
    items = first.shape[0] if first is not None and first.shape else 1
    return Summary(net.name, items, net.memory_used, tuple(layers))


def _definition(net: caffe_pb2.NetParameter | str | os.PathLike[str]) -> caffe_pb2.NetParameter:
    if isinstance(net, caffe_pb2.NetParameter):
        return net
    if isinstance(net, str) and net in list():
        return read_net_upgraded(path(net, "deploy.prototxt"))
    if isinstance(net, str) and "/" not in net and not Path(net).exists():
        path(net)  # raises: neither a file nor a model
    return read_net_upgraded(net)


def _multiply_adds(layer: Layer, bottoms: Sequence[Blob], tops: Sequence[Blob]) -> int:
    if layer.type == "Convolution":
        return sum(top.count for top in tops) * math.prod(layer.blobs[0].shape[1:])
    if layer.type == "Deconvolution":
        return sum(bottom.count for bottom in bottoms) * math.prod(layer.blobs[0].shape[1:])
    if layer.type == "InnerProduct":
        weights = layer.blobs[0]
        return tops[0].count // layer.layer_param.inner_product_param.num_output * weights.count
    if layer.type in ("LSTM", "RNN"):
        steps, streams = bottoms[0].shape[:2]
        return steps * streams * sum(blob.count for blob in layer.blobs if len(blob.shape) == 2)
    return 0


def without_data(
    net: caffe_pb2.NetParameter | str | os.PathLike[str], shapes: Mapping[str, Sequence[int]]
) -> caffe_pb2.NetParameter:
    """A copy of the net in which Input layers stand in place of those that read data.

    net: a definition, or the path of a prototxt. shapes: {top: its shape} for each top of such a layer.
    Include rules stay, so that the result is a net for either phase. Raises NetError for a top whose shape is
    not given.
    """
    result = caffe_pb2.NetParameter()
    result.CopyFrom(net if isinstance(net, caffe_pb2.NetParameter) else read_net_upgraded(net))
    for layer in result.layer:
        if layer.type not in _DATA_TYPES:
            continue
        put = caffe_pb2.LayerParameter(
            name=layer.name, type="Input", top=layer.top, include=layer.include, exclude=layer.exclude
        )
        for top in layer.top:
            if top not in shapes:
                raise NetError(f"layer '{layer.name}': shapes lacks its top '{top}' (given: {', '.join(shapes)})")
            put.input_param.shape.add(dim=shapes[top])
        layer.CopyFrom(put)
    return result
