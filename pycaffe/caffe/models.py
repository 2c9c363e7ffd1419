"""The reference models that ship with the package: where they are, and what they cost.

caffe.models.list()                      ['bvlc_alexnet', 'bvlc_googlenet', ...]
caffe.models.path("vgg16")               the folder;  path("vgg16", "deploy.prototxt")  a file in it
print(caffe.models.summary("vgg16"))     parameters and multiply-adds of each layer
caffe.models.without_data(net, shapes)   the net with inputs in place of its data layers
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import DataError, NetError, closest
from .net import Net
from .net_summary import LayerSummary, summarize
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
class Summary:
    """What a net is made of. items: in its batch (the first axis of the first blob). memory: bytes of all
    blobs' data for that batch, without parameters and gradients. layers: net_summary's rows."""

    name: str
    items: int
    memory: int
    layers: tuple[LayerSummary, ...]

    @property
    def parameters(self) -> int:
        """That are learned; papers do not count BatchNorm's statistics."""
        return sum(layer.parameters for layer in self.layers if layer.type not in _STATISTICS)

    @property
    def multiply_adds(self) -> int:
        """For one item."""
        return sum(layer.multiply_adds for layer in self.layers) // self.items

    def __str__(self) -> str:
        return (
            f"{self.name or 'the net'}: {self.parameters:,} parameters, {self.multiply_adds:,} multiply-adds "
            f"and {self.memory / self.items / 1e6:,.1f} MB of blobs for one item"
        )


def summary(net: Net | caffe_pb2.NetParameter | str | os.PathLike[str]) -> Summary:
    """Parameters and multiply-adds, computed from the shapes.

    net: a net; a definition, which is built for TEST; the name of a reference model, or the path of a
    prototxt. Raises what Net raises, and DataError for a name that is neither.
    """
    if not isinstance(net, Net):
        net = Net(_definition(net), phase=caffe_pb2.TEST)
    first = next(iter(net.blobs.values()), None)
    items = first.shape[0] if first is not None and first.shape else 1
    return Summary(net.name, items, net.memory_used, tuple(summarize(net)))


def _definition(net: caffe_pb2.NetParameter | str | os.PathLike[str]) -> caffe_pb2.NetParameter:
    if isinstance(net, caffe_pb2.NetParameter):
        return net
    if isinstance(net, str) and net in list():
        return read_net_upgraded(path(net, "deploy.prototxt"))
    if isinstance(net, str) and "/" not in net and not Path(net).exists():
        path(net)  # raises: neither a file nor a model
    return read_net_upgraded(net)


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
                raise NetError(
                    f"layer '{layer.name}': shapes lacks its top '{top}' (given: {', '.join(shapes)})"
                )
            put.input_param.shape.add(dim=shapes[top])
        layer.CopyFrom(put)
    return result
