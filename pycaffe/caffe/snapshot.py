"""Snapshots: the net's parameters and the solver's state, in the original's formats in both directions.

A snapshot is three files: <prefix>_iter_<n>.caffemodel, a resume file (resume_file.py), and
<prefix>_iter_<n>.solverstate; or .caffemodel.h5 and .solverstate.h5. They appear together: the solver state
is the last, and where it is, the others are its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np

from . import net_weights, resume_file
from .atomic_file import check_folder, remove_leftovers, temporary_names
from .blob import proto_shape
from .errors import ProtoError, SnapshotError, WeightsError
from .hdf5_layers import hdf5_writer, write_text
from .proto import caffe_pb2
from .solver_registry import solver_class, solver_type_list
from .wire import WireBlob, blob_index, read_solver_state, set_blob_index, write_solver_state

if TYPE_CHECKING:
    from .solver import Solver

log = logging.getLogger("caffe.solver")


def check_writable(param: caffe_pb2.SolverParameter) -> None:
    """Find out at the start, not after hours, that snapshots have nowhere to go. Raises SnapshotError."""
    if not param.snapshot and not param.snapshot_after_train:
        return
    folder = Path(param.snapshot_prefix or "").parent
    if not folder.is_dir():
        raise SnapshotError(
            f"Cannot write to snapshot prefix '{param.snapshot_prefix}'.  Make sure that the directory "
            f"exists and is writable: there is no directory '{folder}'. Create it, or change snapshot_prefix"
        )
    try:
        with contextlib.suppress(FileNotFoundError):
            os.lstat(f"{param.snapshot_prefix}_iter_{param.max_iter}.solverstate.h5")
        check_folder(folder, f"{Path(param.snapshot_prefix).name}_iter_")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SnapshotError(
            f"Cannot write to snapshot prefix '{param.snapshot_prefix}'.  Make sure that the directory "
            f"exists and is writable: {reason}. Change snapshot_prefix"
        ) from error


def check_size(solver: Solver) -> None:
    """Find out at the start that a snapshot would be too large for its format. Raises SnapshotError."""
    if _is_hdf5(solver):
        return
    sizes = {
        ".caffemodel": net_weights.number_bytes(solver.net, solver.param.snapshot_diff),
        ".solverstate": 4 * sum(blob.count for blob in solver.history),
    }
    for extension, size in sizes.items():
        if size > net_weights.BINARY_LIMIT:
            raise SnapshotError(
                f"Snapshots as binary proto can have 2 GiB at most, and the {extension} of this net would "
                f"have {size / 2**30:.2f}. Write `snapshot_format: HDF5` into the solver"
            )


def _is_hdf5(solver: Solver) -> bool:
    return solver.param.snapshot_format == caffe_pb2.SolverParameter.HDF5


def file_name(solver: Solver, extension: str) -> str:
    return f"{solver.param.snapshot_prefix}_iter_{solver.iter}{extension}"


def remove_old_leftovers(param: caffe_pb2.SolverParameter) -> None:
    """Remove what a killed training with this prefix left behind."""
    prefix = Path(param.snapshot_prefix)
    names = (f"{prefix.name}_iter_", f"{resume_file.PREFIX}{prefix.name}_iter_")
    for path in remove_leftovers(prefix.parent, names):
        log.info("Removed %s, left behind by a training that was killed", path)


# -- writing --------------------------------------------------------------------------------------------


def write(solver: Solver) -> str:
    """Write a snapshot in the format of the recipe; returns the path of the solver state. Raises
    SnapshotError, and then there is no new file."""
    hdf5 = _is_hdf5(solver)
    ending, kind = (".h5", "HDF5") if hdf5 else ("", "binary proto")
    model, state = (file_name(solver, e + ending) for e in (".caffemodel", ".solverstate"))
    write_net = net_weights.write_hdf5 if hdf5 else net_weights.write
    write_state = _write_hdf5 if hdf5 else _write_binary
    try:
        with temporary_names(model, resume_file.path_beside(state), state) as (
            new_model,
            new_resume,
            new_state,
        ):
            log.info("Snapshotting to %s file %s", kind, model)
            write_net(solver.net, new_model, solver.param.snapshot_diff)
            resume_file.write(solver, new_resume)
            log.info("Snapshotting solver state to %s file %s", kind, state)
            write_state(solver, model, new_state)
    except OSError as error:
        raise SnapshotError(f"cannot write the snapshot {model}: {error.strerror or error}") from error
    except (ProtoError, WeightsError) as error:
        raise SnapshotError(f"cannot write the snapshot {model}: {error}") from error
    return state


def _write_binary(solver: Solver, model: str, path: Path) -> None:
    state = caffe_pb2.SolverState(iter=solver.iter, learned_net=model, current_step=solver.current_step)
    arrays = []
    for i, blob in enumerate(solver.history):
        proto = state.history.add()
        proto.shape.dim.extend(blob.shape)
        set_blob_index(proto, i)
        arrays.append(WireBlob(blob.cpu_data().reshape(-1)))
    with open(path, "wb") as file:
        write_solver_state(file, state, arrays)


def _write_hdf5(solver: Solver, model: str, path: Path) -> None:
    with hdf5_writer(path) as file:
        file.create_dataset("iter", data=np.array([solver.iter], np.int32))
        write_text(file, "learned_net", os.fsencode(model))
        file.create_dataset("current_step", data=np.array([solver.current_step], np.int32))
        history = file.create_group("history")
        for i, blob in enumerate(solver.history):
            history.create_dataset(str(i), data=blob.cpu_data())


# -- restoring ------------------------------------------------------------------------------------------


@dataclass
class _State:
    """What a .solverstate holds. history: shape and values of each blob."""

    iteration: int
    learned_net: str
    current_step: int
    history: list[tuple[tuple[int, ...], np.ndarray]]


def restore(solver: Solver, path: str) -> None:
    """Continue from a solver state. Raises SnapshotError for what is none, or not one of this solver and net,
    and WeightsError for weights that do not fit; then the solver is as it was. (Only a layer that cannot take
    up its own state is found out later.)"""
    if ".caffemodel" in Path(path).name:
        raise SnapshotError(
            f"{path} holds weights, not a solver's state: give the .solverstate to resume, or use weights to "
            "fine-tune"
        )
    if not Path(path).is_file():
        raise SnapshotError(f"there is no solver state {path}")
    state = _read_hdf5(path) if path.endswith(".h5") else _read_binary(path)
    resume, why = _read_resume(state, path)
    _check(solver, state, path, resume.solver_type if resume else "")
    if state.learned_net:
        model = _find_model(state.learned_net, path)
        missing = net_weights.copy_from(solver.net, model)
        if missing:
            log.warning("%s lacks the parameters of %s, which stay as they are", model, ", ".join(missing))
    solver.iter, solver.current_step = state.iteration, state.current_step
    log.info("%sSolver: restoring history", solver.type)
    for (_, values), blob in zip(state.history, solver.history, strict=True):
        blob.overwrite_cpu_data()[...] = values.reshape(blob.shape)
    if resume is not None:
        resume.apply(solver)
    else:
        solver.loss_window.clear()
        log.warning(
            "%s. Data layers begin anew, and other random numbers are drawn than the training would have had "
            "(so it is with the original, too); parameters and history are complete",
            why,
        )


def _read_resume(state: _State, path: str) -> tuple[resume_file.Resume | None, str]:
    """The resume file of this solver state, or None and the reason."""
    name = resume_file.path_beside(path)
    resume = resume_file.Resume.read(name)
    if resume is None:
        return None, f"There is no {name}"
    values = (v for _, v in state.history)
    if resume.fingerprint != resume_file.fingerprint(state.iteration, state.current_step, values):
        return None, f"{name} belongs to another solver state than {path}"
    return resume, ""


def _check(solver: Solver, state: _State, path: str, written_by: str) -> None:
    if written_by and written_by != solver.type:
        raise SnapshotError(
            f"{path} was written by a solver of type {written_by}, this one is {solver.type}: a state goes "
            "on in its own type only. To begin anew from its parameters, give the .caffemodel as weights"
        )
    have, need = len(state.history), len(solver.history)
    if have != need:
        others = _types_with(have, len(solver.net.learnable))
        raise SnapshotError(
            f"{path}: Incorrect length of history blobs: {have} in the file, and this {solver.type} solver "
            f"has {need}. It belongs to {f'another solver type ({others}) or ' if others else ''}another net"
        )
    for i, ((shape, values), blob) in enumerate(zip(state.history, solver.history, strict=True)):
        if shape != blob.shape:
            raise SnapshotError(
                f"{path}: history blob {i} has shape {shape}, this solver needs {blob.shape}; it belongs to "
                "another net"
            )
        if values.size != blob.count:
            raise SnapshotError(
                f"{path}: history blob {i} has {values.size} values for shape {shape}: damaged"
            )


def _types_with(blobs: int, params: int) -> str:
    """The solver types that keep so many history blobs for so many parameters."""
    classes = {name: solver_class(name) for name in solver_type_list()}
    return ", ".join(name for name, cls in classes.items() if getattr(cls, "histories", 0) * params == blobs)


def _find_model(learned: str, path: str) -> str:
    if Path(learned).is_file():
        return learned
    beside = Path(path).with_name(Path(learned).name)
    if beside.is_file():
        return str(beside)
    raise SnapshotError(f"{path} continues from {learned}, which is neither there nor at {beside}")


def _read_binary(path: str) -> _State:
    try:
        message, arrays = read_solver_state(path)
    except ProtoError as error:
        raise SnapshotError(f"{path} is no solver state that can be read: {error}") from error
    if not message.HasField("iter"):
        raise SnapshotError(
            f"{path} is no solver state: it names no iteration. Weights (a .caffemodel) are given by -weights"
        )
    history = []
    for blob in message.history:
        values = arrays[blob_index(blob)].data
        history.append((proto_shape(blob), np.zeros(0, np.float32) if values is None else values))
    return _State(message.iter, message.learned_net, message.current_step, history)


def _first(dataset: h5py.Dataset) -> int:
    return int(np.asarray(dataset[()]).item(0))


def _numbers(dataset: h5py.Dataset) -> np.ndarray:
    return np.asarray(dataset[()], np.float32)


def _read_hdf5(path: str) -> _State:
    try:
        with h5py.File(path, "r") as file:
            group = file["history"]
            learned = file["learned_net"][()] if "learned_net" in file else b""
            return _State(
                _first(file["iter"]),
                os.fsdecode(learned),
                _first(file["current_step"]) if "current_step" in file else 0,
                [(group[str(i)].shape, _numbers(group[str(i)])) for i in range(len(group))],
            )
    except (OSError, LookupError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise SnapshotError(f"{path} is no solver state in HDF5 that can be read: {error}") from error
