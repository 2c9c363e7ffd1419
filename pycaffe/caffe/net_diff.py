"""What distinguishes two nets: layers, their definitions, their parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from google.protobuf.message import Message

from .blob import proto_shape
from .errors import WireError
from .net_summary import shape_text
from .proto import caffe_pb2
from .proto_text import read_net
from .upgrade_proto import upgrade_net
from .wire import WireBlob, blob_index, read_net_binary

# A layer by its name and how many of that name stand before it.
Key = tuple[str, int]


@dataclass
class NetFile:
    """A net as a file has it, without the splits that a net puts in by itself. layers: definitions without
    parameters. weights: the parameters' arrays, of layers that have any."""

    name: str = ""
    layers: dict[Key, caffe_pb2.LayerParameter] = field(default_factory=dict)
    weights: dict[Key, list[np.ndarray]] = field(default_factory=dict)


def read_net_file(path: str | Path) -> NetFile:
    """From a prototxt or a .caffemodel, of any age. Raises ProtoError."""
    arrays: Sequence[WireBlob] = ()
    try:
        param, arrays = read_net_binary(str(path))
    except WireError:
        if str(path).endswith(".caffemodel"):
            raise
        param = read_net(path)
    upgrade_net(param, str(path))
    net, seen = NetFile(param.name), Counter[str]()
    whole: dict[str, str] = {}  # what the splits of a net that ran are called -> what they split
    for layer in param.layer:
        if layer.type == "Split" and layer.name.endswith("_split") and layer.bottom:
            whole.update(dict.fromkeys(layer.top, layer.bottom[0]))
            continue
        layer.bottom[:] = [whole.get(bottom, bottom) for bottom in layer.bottom]
        key = (layer.name, seen[layer.name])
        seen[layer.name] += 1
        if layer.blobs and arrays:
            net.weights[key] = [_array(blob, arrays[blob_index(blob)]) for blob in layer.blobs]
        del layer.blobs[:]
        layer.ClearField("phase")  # written by the net that was saved, in every layer
        net.layers[key] = layer
    return net


def _array(proto: caffe_pb2.BlobProto, blob: WireBlob) -> np.ndarray:
    values = np.zeros(0, np.float32) if blob.data is None else blob.data
    shape = proto_shape(proto)
    return values.reshape(shape) if np.prod(shape) == values.size else values


def differences(a: NetFile, b: NetFile) -> list[str]:
    """Lines of text, none for equal nets: "- " what only a has, "+ " what only b has, "~ " what differs."""
    lines = [] if a.name == b.name else [f"~ name: '{a.name}' against '{b.name}'"]
    common = [key for key in a.layers if key in b.layers]
    if common != [key for key in b.layers if key in a.layers]:
        lines.append("~ the layers that both have stand in another order")
    for key, layer in a.layers.items():
        if key not in b.layers:
            lines.append(f"- {_named(layer)}")
            continue
        changes = [*_definition(layer, b.layers[key]), *_weights(a.weights.get(key), b.weights.get(key))]
        if changes:
            lines += [f"~ {_named(layer)}", *(f"    {change}" for change in changes)]
    lines += [f"+ {_named(layer)}" for key, layer in b.layers.items() if key not in a.layers]
    return lines


def _named(layer: caffe_pb2.LayerParameter) -> str:
    return f"layer '{layer.name}' ({layer.type})"


def _definition(a: caffe_pb2.LayerParameter, b: caffe_pb2.LayerParameter) -> Iterator[str]:
    ours, theirs = dict(_fields(a)), dict(_fields(b))
    for name in dict.fromkeys((*ours, *theirs)):
        if ours.get(name) != theirs.get(name):
            yield f"{name}: {ours.get(name, 'nothing')} against {theirs.get(name, 'nothing')}"


def _fields(message: Message, prefix: str = "") -> Iterator[tuple[str, str]]:
    """What a message says, field by field: ("param[0].lr_mult", "1.0")."""
    for descriptor, value in message.ListFields():
        name = prefix + descriptor.name
        several = not isinstance(value, (Message, str, bytes, int, float))
        for k, one in enumerate(list(value) if several else [value]):
            place = f"{name}[{k}]" if several else name
            if isinstance(one, Message):
                yield from _fields(one, f"{place}.")
            elif descriptor.enum_type is not None:
                yield place, descriptor.enum_type.values_by_number[int(one)].name
            else:
                yield place, repr(one)


def _weights(a: list[np.ndarray] | None, b: list[np.ndarray] | None) -> Iterator[str]:
    """Where both files have parameters at all."""
    if a is None or b is None:
        return
    if len(a) != len(b):
        yield f"{len(a)} parameters against {len(b)}"
        return
    for k, (one, other) in enumerate(zip(a, b, strict=True)):
        if one.shape != other.shape:
            yield f"param {k}: {shape_text(one.shape)} against {shape_text(other.shape)}"
            continue
        unequal = (one != other) & ~(np.isnan(one) & np.isnan(other))
        if unequal.any():
            apart = np.abs(one[unequal].astype(np.float64) - other[unequal]).max()
            yield (
                f"param {k} ({shape_text(one.shape)}): {unequal.sum():,} of {one.size:,} values differ, "
                f"by at most {apart:.4g}; the largest is {np.abs(one).max():.4g}"
            )
