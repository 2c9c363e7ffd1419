"""The resume file: what a training depends on beside its .solverstate, whose format cannot hold it.

resume_<name>.npz beside <name>.solverstate, an archive of NumPy's without pickles. Its member `resume` is
JSON in UTF-8:

    format, solver_type, fingerprint       what it belongs to
    loss_window                            losses that average_loss averages
    nets: [{seed, iteration, sub_iteration, layers: [{index, name, type, state}]}]     train net, test nets

and NumPy arrays of a layer's state are members `<net>/<layer index>/<key>`. A layer's state is what its
save_state gives: its place in the data, a recurrent state. See docs/decisions/0021-resume-file.md.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zipfile
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .context import solver_rank
from .errors import SnapshotError

if TYPE_CHECKING:
    from .net import Net
    from .solver import Solver

log = logging.getLogger("caffe.solver")

PREFIX = "resume_"  # before the name: the original's users look for names that begin with the snapshot_prefix
_FORMAT = 1
_SAMPLE = 256  # numbers of each history blob that go into the fingerprint


def path_beside(state_path: str) -> str:
    """a/x_iter_10.solverstate, a/x_iter_10.solverstate.h5 -> a/resume_x_iter_10.npz"""
    path = Path(state_path.removesuffix(".h5").removesuffix(".solverstate"))
    return str(path.with_name(f"{PREFIX}{path.name}.npz"))


def fingerprint(iteration: int, step: int, history: Iterable[np.ndarray]) -> str:
    """Tells solver states apart, so that the resume file of another one is not taken for this one's."""
    digest = hashlib.blake2b(f"{iteration} {step}".encode(), digest_size=16)
    for values in history:
        digest.update(f" {values.size} ".encode())
        digest.update(np.ravel(values)[:_SAMPLE].astype("<f4").tobytes())
    return digest.hexdigest()


def write(solver: Solver, path: str | Path) -> None:
    """Write the file to this path, in place. Raises SnapshotError for a layer's state that it cannot hold."""
    train, arrays = net_states([solver.net], 0)
    tests, more = solver.states_before_test or net_states(solver.test_nets, 1)
    resume = {
        "format": _FORMAT,
        "solver_type": solver.type,
        "fingerprint": fingerprint(solver.iter, solver.current_step, (h.cpu_data() for h in solver.history)),
        "loss_window": list(solver.loss_window),
        "nets": [*train, *tests],
    }
    text = json.dumps(resume, default=_plain).encode()
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=False, resume=np.frombuffer(text, np.uint8), **arrays, **more)


# What stands for some nets under `nets`, and the archive's arrays that belong to it.
NetStates = tuple[list[dict[str, Any]], dict[str, np.ndarray]]


def net_states(nets: Iterable[Net], first: int) -> NetStates:
    """The states of nets, numbered from `first`, which stay as they are while the nets go on. Raises
    SnapshotError for a layer's state that a resume file cannot hold."""
    arrays: dict[str, np.ndarray] = {}
    return [_net_state(net, f"{i}/", arrays) for i, net in enumerate(nets, first)], arrays


def _net_state(net: Net, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    layers = []
    for i, layer in enumerate(net.layers):
        state = layer.save_state()
        if not state:
            continue
        plain = {}
        for key, value in state.items():
            if isinstance(value, np.ndarray) and value.dtype.kind != "O":
                arrays[f"{prefix}{i}/{key}"] = value.copy()
                continue
            try:
                plain[key] = json.loads(json.dumps(value, default=_plain))
            except (TypeError, ValueError) as error:
                raise SnapshotError(
                    f"layer '{layer.name}' ({layer.type}): save_state gives {key!r}, of type "
                    f"{type(value).__name__}; a state holds NumPy arrays of numbers, and what JSON can hold"
                ) from error
        layers.append({"index": i, "name": layer.name, "type": layer.state_type, "state": plain})
    run = net.run
    return {
        "seed": list(run.seed),
        "iteration": run.iteration,
        "sub_iteration": run.sub_iteration,
        "layers": layers,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no JSON")


class Resume:
    """A resume file that was read. solver_type, fingerprint: what it belongs to."""

    def __init__(self, path: str, resume: dict[str, Any], arrays: dict[str, np.ndarray]):
        self.path, self._arrays = path, arrays
        self.solver_type: str = resume["solver_type"]
        self.fingerprint: str = resume["fingerprint"]
        self._losses: list[float] = resume["loss_window"]
        self._nets: list[dict[str, Any]] = resume["nets"]
        for net in self._nets:
            for key in ("seed", "iteration", "sub_iteration", "layers"):
                net[key]

    @classmethod
    def read(cls, path: str) -> Resume | None:
        """None where there is no such file; SnapshotError for one that is damaged or of a newer format."""
        if not Path(path).is_file():
            return None
        cure = "remove it to resume without it, as the original does"
        try:
            with np.load(path, allow_pickle=False) as archive:
                resume = json.loads(bytes(archive["resume"]))
                if resume["format"] > _FORMAT:
                    raise SnapshotError(f"{path} was written by a newer version of this program; {cure}")
                return cls(path, resume, {k: archive[k] for k in archive.files if k != "resume"})
        except (
            OSError,
            EOFError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RuntimeError,  # encrypted, or (NotImplementedError) of another kind, by a header that is damaged
            zipfile.BadZipFile,
            zlib.error,
        ) as error:
            raise SnapshotError(f"{path} is damaged ({error!r}); {cure}") from error

    def apply(self, solver: Solver) -> None:
        """Bring the solver's nets to where they were. What is not there any more is named in a warning."""
        solver.loss_window = deque(self._losses, maxlen=solver.param.average_loss)
        nets = [solver.net, *solver.test_nets]
        if len(nets) != len(self._nets):
            log.warning(
                "%s holds the state of %d nets, and there are %d", self.path, len(self._nets), len(nets)
            )
        for i, (net, saved) in enumerate(zip(nets, self._nets, strict=False)):
            self._apply(net, saved, f"{i}/")

    def _apply(self, net: Net, saved: dict[str, Any], prefix: str) -> None:
        run = net.run
        run.reseed(_seed_of_rank(saved["seed"]))
        run.iteration, run.sub_iteration = saved["iteration"], saved["sub_iteration"]
        for entry in saved["layers"]:
            layer = _find(net.layers, entry)
            if layer is None:
                log.warning(
                    "%s holds the state of a layer '%s' (%s), which is not in the net any more",
                    self.path,
                    entry["name"],
                    entry["type"],
                )
                continue
            start = f"{prefix}{entry['index']}/"
            arrays = {k.removeprefix(start): v for k, v in self._arrays.items() if k.startswith(start)}
            try:
                layer.load_state({**entry["state"], **arrays})
            except (KeyError, TypeError, ValueError) as error:
                raise SnapshotError(
                    f"{self.path}: layer '{layer.name}' ({layer.type}) cannot go on from its state: {error!r}"
                ) from error


def _find(layers: Sequence[Any], entry: dict[str, Any]) -> Any:
    def fits(layer: Any) -> bool:
        return layer.name == entry["name"] and layer.state_type == entry["type"]

    index = entry["index"]
    if index < len(layers) and fits(layers[index]):
        return layers[index]
    return next((layer for layer in layers if fits(layer)), None)


def _seed_of_rank(seed: Sequence[int]) -> tuple[int, ...]:
    """Rank 0 writes the file. The others draw numbers of their own, as they did when each was seeded."""
    return (seed[0] + solver_rank(), *seed[1:])
