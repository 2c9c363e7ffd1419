"""A model as plain files, which `caffe train` takes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np

from ..atomic_file import atomic_write, temporary_name
from ..errors import DataError
from ..net_weights import save as save_weights
from ..net_weights import save_hdf5
from ..proto import caffe_pb2
from ..proto_text import write
from .feed import ArraySource
from .graph import ModelError

if TYPE_CHECKING:
    from .model import Model
    from .running import ModelNet


def save(model: Model, net: str, weights: str, solver: str) -> None:
    """See Model.save."""
    if not (net or weights or solver):
        raise TypeError("save(net, weights, solver): give at least one path")
    definition = model.to_proto()
    start = _start(model, definition) if solver else None
    if net or solver:
        _write_arrays(model, definition, net or solver)
    if net:
        write(definition, net)
    if weights:
        current = model.weights_net()
        (save_hdf5 if weights.endswith(".h5") else save_weights)(current, weights)
    if solver:
        recipe = _recipe(model, definition, net)
        if start is not None:
            path = str(Path(solver).with_suffix("")) + "_start.caffemodel"
            save_weights(start, path)
            recipe.ClearField("weights")
            recipe.weights.append(path)
        write(recipe, solver)


def _start(model: Model, definition: caffe_pb2.NetParameter) -> ModelNet | None:
    """A net with the parameters with which the training began (or would begin now); None where a net of this
    definition draws these by itself."""
    minimizer = model.minimizer
    start = minimizer.start
    if minimizer.iter == 0 and model.has_values:
        start = model.copy_values()
    if start is None:
        return None
    fresh = type(model).from_proto(definition, seed=model.seed, device=model.device, engine=model.engine)
    net = fresh.net("train")
    return net if fresh.replace_values(start) else None


def _recipe(model: Model, definition: caffe_pb2.NetParameter, net: str) -> caffe_pb2.SolverParameter:
    param = caffe_pb2.SolverParameter()
    param.CopyFrom(model.minimizer.param)
    if net:
        param.net = net
    else:
        param.net_param.CopyFrom(definition)
    param.random_seed = model.seed
    return param


def _write_arrays(model: Model, definition: caffe_pb2.NetParameter, beside: str) -> None:
    """Put HDF5Data layers in place of feeds of arrays, and write their files."""
    written: set[Path] = set()
    for layer in definition.layer:
        if layer.type != "Python" or layer.python_param.module != "caffe.model.feed":
            continue
        source = model.feeds[layer.python_param.param_str]
        if not isinstance(source, ArraySource):
            raise ModelError(
                f"layer '{layer.name}' reads a data set or an iterator of this program, which no file "
                "can hold. Save only the weights, or give the model arrays, HDF5 files or databases"
            )
        phase = "_test" if any(rule.phase == caffe_pb2.TEST for rule in layer.include) else ""
        stem = Path(beside).with_suffix("")
        name = f"{stem.name}_{layer.name.replace('/', '_')}{phase}"
        file, number = stem.with_name(f"{name}.h5"), 1
        while file in written:
            number += 1
            file = stem.with_name(f"{name}{number}.h5")
        written.add(file)
        _write_hdf5(file, dict(zip(layer.top, source.arrays.values(), strict=True)))
        listed = file.with_suffix(".txt")
        with atomic_write(str(listed)) as out:
            out.write(f"{file}\n".encode())
        layer.type = "HDF5Data"
        layer.ClearField("python_param")
        layer.hdf5_data_param.source = str(listed)
        layer.hdf5_data_param.batch_size = source.batch_size
        if source.shuffle:
            layer.hdf5_data_param.shuffle = True


def _write_hdf5(file: Path, arrays: Mapping[str, np.ndarray]) -> None:
    kinds = {"f": np.float32, "b": np.uint8}
    try:
        with temporary_name(file) as temporary, h5py.File(temporary, "w") as h5:
            for name, array in arrays.items():
                h5[name] = array.astype(kinds.get(array.dtype.kind, array.dtype))
    except OSError as error:
        raise DataError(f"cannot write {file}: {error.strerror or error}") from error
