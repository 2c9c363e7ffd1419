"""Snapshots: the net's parameters and the solver's state, written so that a pair is whole or absent.

The .solverstate is written last: it is the commit of the pair. Formats are the original's, in both
directions.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np

from . import net_weights
from .atomic_file import atomic_write, temporary_name
from .blob import proto_shape
from .errors import SnapshotError
from .proto import caffe_pb2
try:
    from .wire import WireBlob, read_solver_state, write_solver_state
except ImportError:
    pass

if TYPE_CHECKING:
    from .solvers.sgd import SGDSolver

log = logging.getLogger("caffe.solver")


def check_writable(param: caffe_pb2.SolverParameter) -> None:
    """Find out at the start, not after hours, that snapshots have nowhere to go. Raises SnapshotError."""
    if not param.snapshot and not param.snapshot_after_train:
        return
    folder = Path(param.snapshot_prefix or "").parent
    if not folder.is_dir():
        raise SnapshotError(
            f"Cannot write to snapshot prefix '{param.snapshot_prefix}'.  Make sure that the directory exists and is "
            f"writable: there is no directory '{folder}'. Create it, or change snapshot_prefix"
        )
    if not os.access(folder, os.W_OK):
        raise SnapshotError(
            f"Cannot write to snapshot prefix '{param.snapshot_prefix}'.  Make sure that the directory exists and is "
            f"writable: '{folder}' is not. Change snapshot_prefix"
        )


def file_name(solver: SGDSolver, extension: str) -> str:
    return f"{solver.param.snapshot_prefix}_iter_{solver.iter}{extension}"


def write(solver: SGDSolver) -> str:
    """Write both files in the format of the recipe; returns the path of the solver state."""
    hdf5 = solver.param.snapshot_format == caffe_pb2.SolverParameter.HDF5
    try:
        if hdf5:
            model = file_name(solver, ".caffemodel.h5")
            log.info("Snapshotting to HDF5 file %s", model)
            net_weights.save_hdf5(solver.net, model, solver.param.snapshot_diff)
            state = file_name(solver, ".solverstate.h5")
            log.info("Snapshotting solver state to HDF5 file %s", state)
            _write_hdf5(solver, model, state)
        else:
            model = file_name(solver, ".caffemodel")
            log.info("Snapshotting to binary proto file %s", model)
            net_weights.save(solver.net, model, solver.param.snapshot_diff)
            state = file_name(solver, ".solverstate")
            log.info("Snapshotting solver state to binary proto file %s", state)
            _write_binary(solver, model, state)
    except OSError as error:
        raise SnapshotError(f"cannot write the snapshot {model}: {error.strerror or error}") from error
    return state


def _write_binary(solver: SGDSolver, model: str, path: str) -> None:
    state = caffe_pb2.SolverState(iter=solver.iter, learned_net=model, current_step=solver.current_step)
    arrays = []
    for i, blob in enumerate(solver.history):
        proto = state.history.add()
        proto.shape.dim.extend(blob.shape)
        proto.double_diff.append(i)
        arrays.append(WireBlob(blob.cpu_data().reshape(-1), None))
    with atomic_write(path) as file:
        write_solver_state(file, state, arrays)


def _write_hdf5(solver: SGDSolver, model: str, path: str) -> None:
    with temporary_name(path) as temporary, h5py.File(temporary, "w") as file:
        file.create_dataset("iter", data=np.int32([solver.iter]))
        file.create_dataset("learned_net", data=np.bytes_(model.encode()))
        file.create_dataset("current_step", data=np.int32([solver.current_step]))
        history = file.create_group("history")
        for i, blob in enumerate(solver.history):
            history.create_dataset(str(i), data=blob.cpu_data())


def restore(solver: SGDSolver, path: str) -> None:
    """Continue from a solver state. Raises SnapshotError for what is none of this solver and net."""
    if ".caffemodel" in Path(path).name:
        raise SnapshotError(
            f"{path} holds weights, not a solver's state: give the .solverstate to resume, or use weights to fine-tune"
        )
    if not Path(path).is_file():
        raise SnapshotError(f"there is no solver state {path}")
    if path.endswith(".h5"):
        iteration, learned, step, history = _read_hdf5(path)
    else:
        iteration, learned, step, history = _read_binary(path)
    if len(history) != len(solver.history):
        raise SnapshotError(
            f"{path}: Incorrect length of history blobs: {len(history)} in the file, {len(solver.history)} in this "
            f"{solver.type} solver; it belongs to another solver type or net"
        )
    for i, (shape, blob) in enumerate(zip((s for s, _ in history), solver.history, strict=True)):
        if tuple(shape) != blob.shape:
            raise SnapshotError(
                f"{path}: history blob {i} has shape {tuple(shape)}, this solver needs {blob.shape}; it belongs to another net"
            )
    if learned:
        solver.net.copy_from(_find_model(learned, path))
    solver.iter, solver.current_step = iteration, step
    log.info("%sSolver: restoring history", solver.type)
    for (_, values), blob in zip(history, solver.history, strict=True):
        blob.overwrite_cpu_data()[...] = np.reshape(values, blob.shape)


def _find_model(learned: str, path: str) -> str:
    if Path(learned).is_file():
        return learned
    beside = Path(path).with_name(Path(learned).name)
    if beside.is_file():
        return str(beside)
    raise SnapshotError(f"{path} continues from {learned}, which is neither there nor at {beside}")


History = list[tuple[tuple[int, ...], np.ndarray]]


def _read_binary(path: str) -> tuple[int, str, int, History]:
    state, arrays = read_solver_state(path)
    if not state.HasField("iter"):
        raise SnapshotError(f"{path} is no solver state: it names no iteration")
    history = []
    for blob in state.history:
        values = arrays[int(blob.double_diff[0])].data
        history.append((proto_shape(blob), np.zeros(0, np.float32) if values is None else values))
    return state.iter, state.learned_net, state.current_step, history


def _read_hdf5(path: str) -> tuple[int, str, int, History]:
    try:
        with h5py.File(path, "r") as file:
            learned = file["learned_net"][()] if "learned_net" in file else b""
            learned = learned.decode() if isinstance(learned, bytes) else str(learned)
            group = file["history"]
            history = [(group[str(i)].shape, group[str(i)][()]) for i in range(len(group))]
            return int(np.ravel(file["iter"][()])[0]), learned, int(np.ravel(file["current_step"][()])[0]), history
    except (OSError, KeyError) as error:
        raise SnapshotError(f"{path} is no solver state in HDF5: {error}") from error
