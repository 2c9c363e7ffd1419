"""Finds the data that ships with the package: the schema, GPU kernel sources, reference models.

Installed from a wheel, they lie in `caffe/_data/<kind>`; in a checkout or an editable install, in the
folder of that name at its top. Package files win, so that an installed package never reads a
neighbour's folder.
"""

from __future__ import annotations

from pathlib import Path

from .errors import DataError, closest

KINDS = ("proto", "cuda_kernels", "models")

_package = Path(__file__).resolve().parent


def data_path(kind: str, *parts: str) -> Path:
    """The existing file or folder `parts` of the data folder `kind` ("proto", "cuda_kernels", "models").

    Treat what lies there as read-only: it may belong to the system.
    Raises DataError for an unknown kind, for a part that leads out of its folder, for a file that
    does not exist (naming its neighbours), and when the installation holds no data at all.
    """
    if kind not in KINDS:
        raise DataError(f"data_path: unknown kind {kind!r}; known: {', '.join(KINDS)}{closest(kind, KINDS)}")
    folder = _folder(kind)
    path = folder.joinpath(*parts)
    if not path.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"data_path: {'/'.join(parts)!r} leads out of the folder {folder}")
    if not path.exists():
        raise DataError(_absent(path))
    return path


def _folder(kind: str) -> Path:
    packaged = _package / "_data" / kind
    if packaged.is_dir():
        return packaged
    top = _package.parent.parent
    # The layout of a checkout, not of some site-packages with a folder called `models` two levels up.
    if (top / "pycaffe" / "caffe").resolve() == _package and (top / kind).is_dir():
        return top / kind
    raise DataError(
        f"data_path: this installation of pycaffe in {_package} lacks its {kind} files; "
        "reinstall it: pip install --force-reinstall pycaffe"
    )


def _absent(path: Path) -> str:
    missing, there = path.name, path.parent
    while not there.is_dir():
        missing, there = there.name, there.parent
    names = sorted(x.name for x in there.iterdir() if not x.name.startswith((".", "__")))
    holds = ", ".join(names) or "nothing"
    return f"data_path: no {missing!r} in {there}; it holds: {holds}{closest(missing, names)}"
