"""Parameters by layer in HDF5, as the original writes them: a group per layer, datasets "0", "1", ... in it.

A name with slashes is a path of groups, which the original can neither write nor read. A name that
makes no path of its own (empty, used twice, "/x", "a/0" ...) is kept in an attribute of a group "#<index>".
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import h5py
import numpy as np

_NAME = "layer_name"


@contextlib.contextmanager
def hdf5_writer(path: str | Path) -> Iterator[h5py.File]:
    """A new file, closed at the end. Raises OSError where HDF5 cannot write; h5py tells it in three ways, and
    the system's reason in the midst of HDF5's own affairs."""
    try:
        with h5py.File(path, "w") as file:
            yield file
    except (OSError, RuntimeError, ValueError) as error:
        reason = re.search(r"\berrno = (\d+)", str(error))
        if reason:
            number = int(reason[1])
            raise OSError(number, os.strerror(number)) from error
        raise OSError(f"HDF5 cannot write: {error}") from error


def write_text(file: h5py.File, name: str, text: bytes) -> None:
    """A string as C programs read it: of fixed length, and with the zero at its end in the file."""
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(len(text) + 1)
    kind.set_strpad(h5py.h5t.STR_NULLTERM)
    dataset = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create(h5py.h5s.SCALAR))
    dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array(text + b"\0"), kind)


def write_layers(group: h5py.Group, layers: Iterable[tuple[str, Mapping[int, np.ndarray]]]) -> None:
    """Write each (layer name, {index: array}); a layer without arrays becomes an empty group."""
    used: set[str] = set()
    for i, (name, arrays) in enumerate(layers):
        if name in used or not _is_path(name):
            target = group.create_group(f"#{i:06d}")
            target.attrs[_NAME] = name
        else:
            target = group.require_group(name)
        used.add(name)
        for j, array in arrays.items():
            target.create_dataset(str(j), data=array)


def _is_path(name: str) -> bool:
    parts = name.split("/")
    odd = any(part in ("", ".") for part in parts) or any(part.isdigit() for part in parts[1:])
    return not odd and not name.startswith("#")


def read_layers(group: h5py.Group) -> list[tuple[str, dict[int, h5py.Dataset]]]:
    """Each (layer name, {index: dataset}) in the order of group names, layers of one name in theirs."""
    plain: list[tuple[str, dict[int, h5py.Dataset]]] = []
    odd: list[tuple[str, dict[int, h5py.Dataset]]] = []
    for key, item in group.items():
        if isinstance(item, h5py.Group):
            if _NAME in item.attrs:
                odd.append((str(item.attrs[_NAME]), _datasets(item)))
            else:
                plain += _below(key, item)
    return plain + odd


def _below(name: str, group: h5py.Group) -> list[tuple[str, dict[int, h5py.Dataset]]]:
    datasets = _datasets(group)
    found = [(name, datasets)] if datasets or not len(group) else []
    for key, item in group.items():
        if isinstance(item, h5py.Group):
            found += _below(f"{name}/{key}", item)
    return found


def _datasets(group: h5py.Group) -> dict[int, h5py.Dataset]:
    return {int(k): v for k, v in group.items() if k.isdigit() and isinstance(v, h5py.Dataset)}
