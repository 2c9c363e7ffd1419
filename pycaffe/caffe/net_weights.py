"""Parameters between nets and files: copying by layer name, sharing, .caffemodel and HDF5.

Everything is checked before anything is copied, so that an error leaves the net as it was.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

import h5py
import numpy as np

from .atomic_file import temporary_name
from .blob import Blob, proto_shape, same_shape
from .errors import ProtoError, WeightsError, closest
from .hdf5_layers import hdf5_writer, read_layers, write_layers
from .proto import caffe_pb2
from .upgrade_proto import upgrade_net
from .wire import WireBlob, blob_index, net_binary_size, read_net_binary, set_blob_index, write_net_binary

if TYPE_CHECKING:
    from .layer import Layer
    from .net import Net

log = logging.getLogger("caffe.net")

T = TypeVar("T")

BINARY_LIMIT = 2**31 - 1
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"


@dataclass
class Source:
    """One parameter as a file holds it: an array of any shape that fits, or a dataset. A legacy 4-D shape
    fits fewer axes."""

    shape: tuple[int, ...]
    values: np.ndarray | h5py.Dataset
    legacy: bool = False

    def copy_to(self, target: np.ndarray) -> None:
        if isinstance(self.values, np.ndarray):
            target[...] = self.values.reshape(target.shape)
        elif target.size:
            self.values.read_direct(target)


# The layers, by name, to which parameters were copied: several files may be copied one after another.
_copied_to: WeakKeyDictionary[Net, set[str]] = WeakKeyDictionary()

# Per layer its parameters by index; HDF5 files leave out those that another layer owns.
Layers = Sequence[tuple[str, Mapping[int, Source]]]


def copy_from(net: Net, source: str | Path | caffe_pb2.NetParameter) -> list[str]:
    """Copy parameters by layer name from a .caffemodel or .h5 (told apart by content) or a NetParameter;
    returns the names of the layers whose parameters are not in it.

    Raises WeightsError, before anything is copied, when a layer's parameters do not fit, and for a file that
    is not there, damaged, or without weights.
    """
    if isinstance(source, caffe_pb2.NetParameter):
        return _copy(net, _from_message(source), "the NetParameter")
    path = str(source)
    try:
        with open(path, "rb") as file:
            magic = file.read(len(_HDF5_MAGIC))
    except OSError as error:
        raise WeightsError(f"Couldn't open {path}: {error.strerror}") from error
    if magic == _HDF5_MAGIC:
        return load_hdf5(net, path)
    try:
        param, arrays = read_net_binary(path)
    except ProtoError as error:
        raise WeightsError(f"{path} holds no weights that can be read: {error}") from error
    upgrade_net(param, path)
    if not param.layer:
        raise WeightsError(f"{path} holds no layers, so no weights; a .caffemodel is wanted")
    return _copy(net, _from_wire(param, arrays, path), path)


def load_hdf5(net: Net, path: str | Path) -> list[str]:
    """As copy_from, for the HDF5 that save_hdf5 (or the original) wrote."""
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise WeightsError(f"Couldn't open {path}: {error}") from error
    with file:
        data = file.get("data")
        if not isinstance(data, h5py.Group):
            raise WeightsError(f"{path} is an HDF5 file without a group 'data': it holds no weights of a net")
        try:
            return _copy(net, _from_hdf5(data, str(path)), str(path), hdf5=True)
        except (OSError, RuntimeError) as error:
            raise WeightsError(f"{path} is damaged: {error}") from error


def _from_hdf5(data: h5py.Group, path: str) -> Layers:
    layers = []
    for name, datasets in read_layers(data):
        sources = {}
        for j, dataset in datasets.items():
            if dataset.dtype.kind not in "fiu":
                raise WeightsError(
                    f"{path}: layer '{name}', param {j} is of type {dataset.dtype}, not numbers"
                )
            # Filtered data can prove damaged while they are read, which must happen before copying begins.
            sources[j] = Source(dataset.shape, dataset if dataset.chunks is None else dataset[()])
        layers.append((name, sources))
    return layers


def _from_message(param: caffe_pb2.NetParameter) -> Layers:
    upgraded = caffe_pb2.NetParameter()
    upgraded.CopyFrom(param)
    upgrade_net(upgraded, "NetParameter")
    return [
        (
            layer.name,
            {
                j: _source(
                    np.array(b.double_data or b.data, np.float32), b, layer.name, j, "the NetParameter"
                )
                for j, b in enumerate(layer.blobs)
            },
        )
        for layer in upgraded.layer
    ]


def _from_wire(param: caffe_pb2.NetParameter, arrays: Sequence[WireBlob], path: str) -> Layers:
    layers = []
    for layer in param.layer:
        sources = {}
        for j, blob in enumerate(layer.blobs):
            values = arrays[blob_index(blob)].data
            values = np.zeros(0, np.float32) if values is None else values
            sources[j] = _source(values, blob, layer.name, j, path)
        layers.append((layer.name, sources))
    return layers


def _source(values: np.ndarray, blob: caffe_pb2.BlobProto, layer: str, j: int, path: str) -> Source:
    shape = proto_shape(blob)
    if math.prod(shape) != values.size:
        raise WeightsError(
            f"{path}: layer '{layer}', param {j}: shape {shape} does not fit its {values.size} values; "
            "the file is damaged"
        )
    return Source(shape, values, not blob.HasField("shape"))


def _copy(net: Net, layers: Layers, path: str, hdf5: bool = False) -> list[str]:
    plan: list[tuple[Blob, Source]] = []
    copied: dict[int, tuple[str, int]] = {}
    owners = {id(p.blob) for p in net.learnable}
    for name, sources, target in _pairs(net, layers):
        if target is None:
            log.info("Ignoring source layer %s", name)
            continue
        missing = [j for j in range(len(target.blobs)) if j not in sources]
        if hdf5:
            missing = [j for j in missing if id(target.blobs[j]) in owners]
        if missing or any(j >= len(target.blobs) for j in sources):
            raise WeightsError(
                f"Incompatible number of blobs for layer {name}: {path} has {len(sources)}, the net "
                f"{len(target.blobs)} (a layer with other parameters, such as bias_term, needs another name)"
            )
        for j, source in sources.items():
            blob = target.blobs[j]
            if not same_shape(source.shape, blob.shape, source.legacy):
                raise _mismatch(net, name, j, source, blob, path)
            plan.append((blob, source))
        if target.blobs:
            copied[id(target)] = (name, len(sources))
    for blob, source in plan:
        source.copy_to(blob.overwrite_cpu_data())
    net.refresh_views()
    return _report(net, layers, copied, path)


def _mismatch(net: Net, name: str, j: int, source: Source, blob: Blob, path: str) -> WeightsError:
    place = net._source.locate(name)
    return WeightsError(
        f"Cannot copy param {j} weights from layer '{name}'; shape mismatch.  Source param shape is "
        f"{_shape_string(source.shape)}; target param shape is {blob.shape_string}. To learn this layer's "
        f"parameters from scratch rather than copying from a saved net, rename the layer. "
        f"(Source: {path}. In {place or 'the net'}, give layer '{name}' another name, such as '{name}_new')"
    )


def _report(net: Net, layers: Layers, copied: Mapping[int, tuple[str, int]], path: str) -> list[str]:
    """One line for each layer with parameters; what was ignored has been said. Returns who got none."""
    fresh = []
    before = _copied_to.get(net, set())
    _copied_to[net] = before | {name for name, _ in copied.values()}
    for layer in net.layers:
        if id(layer) in copied:
            log.info("Layer %s: copied %d blob(s) from %s", layer.name, copied[id(layer)][1], path)
        elif layer.blobs:
            fresh.append(layer.name)
            if layer.name in before:
                log.info("Layer %s: not in %s, it keeps what was copied before", layer.name, path)
            else:
                log.info("Layer %s: new, its parameters stay as they were filled", layer.name)
    if fresh and not copied:
        near = [name + closest(name, [source for source, _ in layers], 1) for name in fresh[:3]]
        log.warning("No layer of %s has a name of this net: nothing was copied (%s)", path, ", ".join(near))
    return fresh


def _pairs(net: Net, layers: Iterable[tuple[str, T]]) -> Iterator[tuple[str, T, Layer | None]]:
    """With each layer the net's layer of that name, or None. Of several of one name the first goes to the
    first and so on; where the net has fewer, the rest to its last."""
    targets: dict[str, list[Layer]] = defaultdict(list)
    for layer in net.layers:
        targets[layer.name].append(layer)
    for name, source in layers:
        here = targets.get(name)
        yield name, source, None if here is None else here.pop(0) if len(here) > 1 else here[0]


def _shape_string(shape: tuple[int, ...]) -> str:
    return "".join(f"{d} " for d in shape) + f"({math.prod(shape)})"


def share_with(net: Net, other: Net) -> None:
    """Alias other's parameters, layer by layer by name. Raises WeightsError when shapes differ."""
    plan: list[tuple[Blob, Blob]] = []
    for name, source, target in _pairs(net, [(layer.name, layer) for layer in other.layers]):
        if target is None:
            log.info("Ignoring source layer %s", name)
            continue
        if len(target.blobs) != len(source.blobs):
            raise WeightsError(
                f"Incompatible number of blobs for layer {name}: {len(source.blobs)} against "
                f"{len(target.blobs)}"
            )
        for j, (mine, theirs) in enumerate(zip(target.blobs, source.blobs, strict=True)):
            if mine.shape != theirs.shape:
                raise WeightsError(
                    f"Cannot share param {j} weights from layer '{name}'; shape mismatch.  Source param "
                    f"shape is {theirs.shape_string}; target param shape is {mine.shape_string}"
                )
            plan.append((mine, theirs))
    for mine, theirs in plan:
        mine.share_data(theirs)


# -- writing --------------------------------------------------------------------------------------------


def _layer_definition(layer: Layer, out: caffe_pb2.LayerParameter) -> None:
    """A layer as it runs, without its parameters. Like the original, a loss tells its weight."""
    out.CopyFrom(layer.layer_param)
    del out.blobs[:]
    if layer.is_loss and not out.loss_weight:
        out.loss_weight.append(1.0)


def _definition(net: Net, write_diff: bool) -> tuple[caffe_pb2.NetParameter, list[WireBlob]]:
    """The net as it runs, its parameters replaced by tokens, and their numbers."""
    param = caffe_pb2.NetParameter()
    param.name = net.name
    arrays: list[WireBlob] = []
    for layer in net.layers:
        out = param.layer.add()
        _layer_definition(layer, out)
        for blob in layer.blobs:
            proto = out.blobs.add()
            proto.shape.dim.extend(blob.shape)
            set_blob_index(proto, len(arrays))
            diff = blob.cpu_diff().reshape(-1) if write_diff else None
            arrays.append(WireBlob(blob.cpu_data().reshape(-1), diff))
    return param, arrays


def number_bytes(net: Net, write_diff: bool = False) -> int:
    """Bytes of the numbers alone in a .caffemodel of this net."""
    return 4 * (1 + write_diff) * sum(blob.count for layer in net.layers for blob in layer.blobs)


def write(net: Net, path: str | Path, write_diff: bool = False) -> None:
    """Write a .caffemodel to this path, in place. Raises WeightsError past protobuf's limit of 2 GB."""
    param, arrays = _definition(net, write_diff)
    size = net_binary_size(param, arrays)
    if size > BINARY_LIMIT:
        raise WeightsError(
            f"{path} would have {size / 2**30:.2f} GiB, and a .caffemodel can have 2 at most: use save_hdf5, "
            "or snapshot_format: HDF5 in the solver"
        )
    with open(path, "wb") as file:
        write_net_binary(file, param, arrays)


def write_hdf5(net: Net, path: str | Path, write_diff: bool = False) -> None:
    """Write HDF5 to this path, in place: groups data and, if asked for, diff. A shared parameter's data are
    written once, under their owner. Raises OSError."""
    owners = {id(p.blob) for p in net.learnable}
    with hdf5_writer(path) as file:
        write_layers(
            file.create_group("data"),
            (
                (layer.name, {j: b.cpu_data() for j, b in enumerate(layer.blobs) if id(b) in owners})
                for layer in net.layers
            ),
        )
        if write_diff:
            write_layers(
                file.create_group("diff"),
                ((layer.name, {j: b.cpu_diff() for j, b in enumerate(layer.blobs)}) for layer in net.layers),
            )


def save(net: Net, path: str | Path, write_diff: bool = False) -> None:
    """Write a .caffemodel, whole or not at all. Raises WeightsError."""
    _save(write, net, path, write_diff)


def save_hdf5(net: Net, path: str | Path, write_diff: bool = False) -> None:
    """Write HDF5, whole or not at all. Raises WeightsError."""
    _save(write_hdf5, net, path, write_diff)


def _save(writer: Callable[[Net, Path, bool], None], net: Net, path: str | Path, write_diff: bool) -> None:
    try:
        with temporary_name(path) as temporary:
            writer(net, temporary, write_diff)
    except OSError as error:
        raise WeightsError(f"cannot write {path}: {error.strerror or error}") from error


def to_proto(net: Net, write_diff: bool = False) -> caffe_pb2.NetParameter:
    param = caffe_pb2.NetParameter()
    param.name = net.name
    for layer in net.layers:
        out = param.layer.add()
        _layer_definition(layer, out)
        out.blobs.extend(blob.to_proto(write_diff) for blob in layer.blobs)
    return param
