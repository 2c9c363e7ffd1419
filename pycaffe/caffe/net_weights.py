"""Parameters between nets and files: copying by layer name, sharing, .caffemodel and HDF5.

Everything is checked before anything is copied, so that an error leaves the net as it was.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np

from .atomic_file import atomic_write, temporary_name
from .blob import Blob, proto_shape, same_shape
from .errors import WeightsError, closest
from .proto import caffe_pb2
from .upgrade_proto import upgrade_net
try:
    from .wire import WireBlob, net_binary_size, read_net_binary, write_net_binary
except ImportError:
    pass

if TYPE_CHECKING:
    from .net import Net

log = logging.getLogger("caffe.net")

BINARY_LIMIT = 2**31 - 1
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"


@dataclass
class Source:
    """One parameter as a file holds it: legacy 4-D shapes fit fewer axes."""

    shape: tuple[int, ...]
    values: np.ndarray
    legacy: bool = False


Layers = list[tuple[str, list[Source]]]


def copy_from(net: Net, source: str | Path | caffe_pb2.NetParameter) -> None:
    """Copy parameters by layer name. Raises WeightsError when a layer's do not fit, DataError or WireError
    when the file is none."""
    if isinstance(source, caffe_pb2.NetParameter):
        _copy(net, _from_message(source), "the NetParameter")
        return
    path = str(source)
    try:
        with open(path, "rb") as file:
            magic = file.read(8)
    except OSError as error:
        raise WeightsError(f"Couldn't open {path}: {error.strerror}") from error
    if magic == _HDF5_MAGIC:
        load_hdf5(net, path)
        return
    if path.endswith(".solverstate"):
        log.warning("%s is named like a solver state; weights are in the .caffemodel beside it", path)
    param, arrays = read_net_binary(path)
    upgrade_net(param, path)
    _copy(net, _from_wire(param, arrays, path), path)


def load_hdf5(net: Net, path: str | Path) -> None:
    """As copy_from, for the HDF5 that save_hdf5 (or the original) wrote."""
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise WeightsError(f"Couldn't open {path}: {error}") from error
    with file:
        data = file.get("data")
        if not isinstance(data, h5py.Group):
            raise WeightsError(f"{path} is an HDF5 file without a group 'data': it holds no weights of a net")
        layers: Layers = []
        for name in data:
            group = data[name]
            # A layer name with slashes is a path of groups.
            for full, sets in _hdf5_layers(name, group):
                layers.append((full, [Source(s.shape, s[()]) for s in sets]))
        _copy(net, layers, str(path))


def _hdf5_layers(name: str, group: h5py.Group) -> list[tuple[str, list[h5py.Dataset]]]:
    found = []
    sets = {k: v for k, v in group.items() if isinstance(v, h5py.Dataset)}
    if sets or not len(group):
        found.append((name, [sets[k] for k in sorted(sets, key=lambda k: (len(k), k))]))
    for k, v in group.items():
        if isinstance(v, h5py.Group):
            found += _hdf5_layers(f"{name}/{k}", v)
    return found


def _from_message(param: caffe_pb2.NetParameter) -> Layers:
    upgraded = caffe_pb2.NetParameter()
    upgraded.CopyFrom(param)
    upgrade_net(upgraded, "NetParameter")
    return [
        (
            layer.name,
            [
                Source(proto_shape(b), np.array(b.double_data or b.data, np.float32), not b.HasField("shape"))
                for b in layer.blobs
            ],
        )
        for layer in upgraded.layer
    ]


def _from_wire(param: caffe_pb2.NetParameter, arrays: Sequence[WireBlob], path: str) -> Layers:
    layers: Layers = []
    for layer in param.layer:
        sources = []
        for j, blob in enumerate(layer.blobs):
            values = arrays[int(blob.double_diff[0])].data
            values = np.zeros(0, np.float32) if values is None else values
            shape = proto_shape(blob)
            if int(np.prod(shape, dtype=np.int64)) != values.size:
                raise WeightsError(
                    f"{path}: layer '{layer.name}', param {j}: shape {shape} does not fit its {values.size} values; "
                    "the file is damaged"
                )
            sources.append(Source(shape, values, not blob.HasField("shape")))
        layers.append((layer.name, sources))
    return layers


def _copy(net: Net, layers: Layers, path: str) -> None:
    plan: list[tuple[Blob, Source]] = []
    copied, ignored = [], []
    for name, sources in layers:
        target = net.layer_dict.get(name)
        if target is None:
            log.info("Ignoring source layer %s", name)
            if sources:
                ignored.append(name)
            continue
        if len(target.blobs) != len(sources):
            # A layer without parameters here takes nothing, whatever it was there.
            raise WeightsError(
                f"Incompatible number of blobs for layer {name}: {path} has {len(sources)}, the net {len(target.blobs)}"
            )
        for j, (blob, source) in enumerate(zip(target.blobs, sources, strict=True)):
            if not same_shape(source.shape, blob.shape, source.legacy):
                raise WeightsError(
                    f"Cannot copy param {j} weights from layer '{name}'; shape mismatch.  Source param shape is "
                    f"{_shape_string(source.shape)}; target param shape is {blob.shape_string}. To learn this layer's "
                    "parameters from scratch rather than copying from a saved net, rename the layer. "
                    f"(Source: {path})"
                )
            plan.append((blob, source))
        if sources:
            copied.append(name)
    for blob, source in plan:
        blob.overwrite_cpu_data()[...] = source.values.reshape(blob.shape)
    net.refresh_views()
    fresh = [name for name in net.params if name not in copied]
    log.info("Copied %d layers from %s: %s", len(copied), path, ", ".join(copied) or "none")
    if fresh:
        log.info("Not in %s, so they keep their values: %s", path, ", ".join(fresh))
    if not copied and net.params:
        near = [n + closest(n, [name for name, _ in layers], 1) for n in fresh[:3]]
        log.warning("No layer of %s has a name of this net: nothing was copied (%s)", path, ", ".join(near))


def _shape_string(shape: tuple[int, ...]) -> str:
    return "".join(f"{d} " for d in shape) + f"({int(np.prod(shape, dtype=np.int64))})"


def share_with(net: Net, other: Net) -> None:
    """Alias other's parameters, layer by layer by name. Raises WeightsError when shapes differ."""
    plan: list[tuple[Blob, Blob]] = []
    for name, source in other.layer_dict.items():
        target = net.layer_dict.get(name)
        if target is None:
            log.info("Ignoring source layer %s", name)
            continue
        if len(target.blobs) != len(source.blobs):
            raise WeightsError(
                f"Incompatible number of blobs for layer {name}: {len(source.blobs)} against {len(target.blobs)}"
            )
        for j, (mine, theirs) in enumerate(zip(target.blobs, source.blobs, strict=True)):
            if mine.shape != theirs.shape:
                raise WeightsError(
                    f"Cannot share param {j} weights from layer '{name}'; shape mismatch.  Source param shape is "
                    f"{theirs.shape_string}; target param shape is {mine.shape_string}"
                )
            plan.append((mine, theirs))
    for mine, theirs in plan:
        mine.share_data(theirs)


# -- writing --------------------------------------------------------------------------------------------


def _definition(net: Net) -> tuple[caffe_pb2.NetParameter, list[Blob]]:
    """The net as it runs, its parameters replaced by tokens that count them."""
    param = caffe_pb2.NetParameter()
    param.name = net.name
    blobs: list[Blob] = []
    for layer in net.layers:
        out = param.layer.add()
        out.CopyFrom(layer.layer_param)
        del out.blobs[:]
        for blob in layer.blobs:
            proto = out.blobs.add()
            proto.shape.dim.extend(blob.shape)
            proto.double_diff.append(len(blobs))
            blobs.append(blob)
    return param, blobs


def save(net: Net, path: str | Path, write_diff: bool = False) -> None:
    """Write a .caffemodel, whole or not at all. Raises WeightsError past protobuf's limit of 2 GB."""
    param, blobs = _definition(net)
    arrays = [
        WireBlob(b.cpu_data().reshape(-1), b.cpu_diff().reshape(-1) if write_diff else None) for b in blobs
    ]
    size = net_binary_size(param, arrays)
    if size > BINARY_LIMIT:
        raise WeightsError(
            f"{path} would have {size / 2**30:.2f} GiB, and a .caffemodel can have 2 at most: use save_hdf5, "
            "or snapshot_format: HDF5 in the solver"
        )
    with atomic_write(path) as file:
        write_net_binary(file, param, arrays)


def save_hdf5(net: Net, path: str | Path, write_diff: bool = False) -> None:
    """Write groups data/<layer>/<index> (and diff/…), whole or not at all. Shared parameters are written once,
    under their owner."""
    owners = {id(p.blob) for p in net.learnable}
    with temporary_name(path) as temporary, h5py.File(temporary, "w") as file:
        data = file.create_group("data")
        diff = file.create_group("diff") if write_diff else None
        for layer in net.layers:
            group = data.require_group(layer.name) if layer.name else data
            diffs = diff.require_group(layer.name) if diff is not None and layer.name else diff
            for j, blob in enumerate(layer.blobs):
                if id(blob) in owners:
                    group.create_dataset(str(j), data=blob.cpu_data())
                if diffs is not None:
                    diffs.create_dataset(str(j), data=blob.cpu_diff())


def to_proto(net: Net, write_diff: bool = False) -> caffe_pb2.NetParameter:
    param = caffe_pb2.NetParameter()
    param.name = net.name
    for layer in net.layers:
        out = param.layer.add()
        out.CopyFrom(layer.layer_param)
        del out.blobs[:]
        out.blobs.extend(blob.to_proto(write_diff) for blob in layer.blobs)
    return param
