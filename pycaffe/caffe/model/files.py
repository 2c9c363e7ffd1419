"""A model as plain files, which `caffe train` takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np

from ..atomic_file import atomic_write
from ..net_weights import save as save_weights
from ..net_weights import save_hdf5
from ..proto import caffe_pb2
from ..proto_text import write
from .feed import ArraySource
from .graph import ModelError

if TYPE_CHECKING:
    from .model import Model


def save(model: Model, net: str, weights: str, solver: str) -> None:
    """See Model.save."""
    if not (net or weights or solver):
        raise TypeError("save(net, weights, solver): give at least one path")
    definition = model.to_proto()
    if net or solver:
        _write_arrays(model, definition, net or solver)
    if net:
        write(definition, net)
    if weights:
        current = model.weights_net()
        (save_hdf5 if weights.endswith(".h5") else save_weights)(current, weights)
    if solver:
        write(_recipe(model, definition, net), solver)


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
        file = stem.with_name(f"{stem.name}_{layer.name.replace('/', '_')}{phase}.h5")
        with h5py.File(file, "w") as h5:
            for top, array in zip(layer.top, source.arrays.values(), strict=True):
                h5[top] = (
                    array.astype(np.float32) if array.dtype.kind == "f" else array.astype(_integer(array))
                )
        listed = file.with_suffix(".txt")
        with atomic_write(str(listed)) as out:
            out.write(f"{file}\n".encode())
        layer.type = "HDF5Data"
        layer.ClearField("python_param")
        layer.hdf5_data_param.source = str(listed)
        layer.hdf5_data_param.batch_size = source.batch_size
        if source.shuffle:
            layer.hdf5_data_param.shuffle = True


def _integer(array: np.ndarray) -> np.dtype:
    return np.dtype(np.uint8) if array.dtype.kind == "b" else array.dtype
