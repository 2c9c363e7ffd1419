"""The table (layer type, engine) -> Kernel, and the choice among engines.

A layer's own forward and backward are the reference. An engine adds faster rows:

    @kernel("ReLU", engine="onednn")
    class ReLUKernel(Kernel):
        @classmethod
        def supports(cls, layer, bottom): ...
        def reshape(self, run, bottom, top): ...
        def forward(self, run, bottom, top): ...
        def backward(self, run, top, propagate_down, bottom): ...

`select` takes the first preferred engine that has a row and supports the case, else the layer itself;
one choice serves both passes. Solver updates live in the same table under their solver's type.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from . import context
from .blob import Blob
from .errors import EngineError
from .execution import ExecutionContext
from .layer import Layer
from .synced_mem import SyncedMem

if TYPE_CHECKING:
    from .net_wiring import LearnableParam

REFERENCE = "reference"

# Numbers that are summed in float32 before float64 takes over.
_CHUNK = 32768


# What is given up at one place of a pass, with what whoever reads it gets to hear.
End = Sequence[tuple[SyncedMem, Callable[[], None]]]


class Kernel:
    """One layer's computation on one engine.

    propagate_down: which bottoms' gradients the net will ask for.
    """

    engine: ClassVar[str] = REFERENCE
    # Is forward nothing but calls that the engine may repeat (`Engine.repeat`) while no shape changes?
    repeatable: bool = False

    def __init__(self, layer: Layer, propagate_down: Sequence[bool] = ()):
        self.layer = layer
        self.propagate_down = propagate_down

    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        """Can this kernel run that layer on bottoms of these shapes, forward and backward?"""
        return True

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        """As a layer's: blobs whose data backward reads, in all the ways in which it may be run."""
        return (*bottom, *top)

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Prepare for these shapes; the tops have theirs already."""

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        raise NotImplementedError

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        raise NotImplementedError


class ReferenceKernel(Kernel):
    """The layer's own NumPy code."""

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return self.layer.backward_reads(bottom, top)

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.layer.forward(bottom, top)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        self.layer.backward(top, propagate_down, bottom)


class PythonKernel(ReferenceKernel):
    """A user's layer: it reads its bottoms and writes its tops through arrays that it may keep."""

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for blob in bottom:
            blob.data_mem.refresh_view()
        self.layer.forward(bottom, top)
        for blob in top:
            blob.data_mem.host_written()

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        for blob in (*top, *bottom):
            blob.data_mem.refresh_view()
        for blob in top:
            blob.diff_mem.refresh_view()
        self.layer.backward(top, propagate_down, bottom)
        for blob in bottom:
            blob.diff_mem.host_written()


class UpdateKernel:
    """One solver type's update on one engine."""

    engine: ClassVar[str] = REFERENCE

    def __init__(self, solver: Any):
        self.solver: Any = weakref.proxy(solver)  # which holds its kernels

    def supports(self, param: LearnableParam, history: Sequence[Blob]) -> bool:
        """Can it update this parameter? Asked once, when the solver is made."""
        return True

    def gradient(self, param: LearnableParam) -> np.ndarray:
        """The parameter's diff as one axis, in any order, to be read and changed (clipping)."""
        return param.blob.mutable_cpu_diff().reshape(-1)

    def sumsq(self, params: Sequence[LearnableParam]) -> float:
        """Σ x² over the diffs of parameters that this kernel updates (clipping)."""
        return math.fsum(_sumsq(self.gradient(param)) for param in params)

    def scale(self, params: Sequence[LearnableParam], factor: float) -> None:
        """Multiply these diffs by factor."""
        for param in params:
            diff = self.gradient(param)
            diff *= np.float32(factor)

    def update(
        self, param: LearnableParam, history: Sequence[Blob], scale: float, decay: float, rate: float
    ) -> None:
        """What SGDSolver.update does, on this engine: g = diff · scale + decay · data (or its sign, for L1);
        from g and the history the new history and the update u; diff = u, data -= u."""
        raise NotImplementedError


def _sumsq(flat: np.ndarray) -> float:
    """Σ x², some numbers at a time in the array's own type."""
    parts = (flat[start : start + _CHUNK] for start in range(0, flat.size, _CHUNK))
    return math.fsum(float(np.einsum("i,i->", part, part)) for part in parts)


class Fused:
    """Neighbouring steps of a net that an engine runs as one where nobody looks between them.

    Afterwards the blobs hold what they would have held, or compute it when they are read. Steps may be run
    one by one at any time, also backward after a fused forward. Of blobs' data, backward reads at most what
    the steps' kernels say (`backward_reads`), however it comes about: fused, one by one, or with what the
    group restores for them.
    fuses_backward: whether `backward` stands for the steps' own; all of them then need a backward pass.
    repeatable: as a kernel's.
    """

    fuses_backward = False
    repeatable = False
    # Whether backward lets the bottoms' diffs borrow from the last step's top's.
    lends_diffs = False

    def __init__(self, steps: Sequence[Any]):
        self.steps = list(steps)
        self.layer: Layer = steps[0].layer

    def begin(self) -> None:
        """A whole forward pass begins: what the last one left to be computed later is not wanted any more."""

    def forget(self) -> None:
        """The steps have been run in another way than as part of a whole pass."""

    def check_shapes(self) -> None:
        """Before backward, as a step's."""
        for step in self.steps:
            step.check_shapes()

    def begin_backward(self) -> None:
        """A whole backward pass begins: likewise for gradients."""

    def forward(self, run: ExecutionContext) -> float:
        raise NotImplementedError

    def backward(self, run: ExecutionContext) -> None:
        raise NotImplementedError


@dataclass
class Engine:
    """An engine as the table knows it.

    load: imports the engine's kernels and checks that it can run here; raises EngineError with the
    cure otherwise. It is called at most once, by the first net that prefers the engine.
    fuse: of a net's steps and an index, a Fused of the steps from that index on, or None.
    repeat: of neighbours that are all repeatable, with what net_memory says of them, a Fused that runs them.
    """

    name: str
    load: Callable[[], None]
    describe: Callable[[], str] = lambda: ""
    fuse: Callable[[Sequence[Any], int], Fused | None] = lambda steps, start: None
    repeat: Callable[[Sequence[Any], Sequence[End], Set[SyncedMem]], Fused] | None = None
    state: str = field(default="unloaded", init=False)  # unloaded, ready, absent
    reason: str = field(default="", init=False)


_engines: dict[str, Engine] = {}
_kernels: dict[tuple[str, str], type[Any]] = {}
_K = TypeVar("_K", bound=type[Any])


def register_engine(engine: Engine) -> None:
    """Make an engine known by name; nothing is loaded."""
    if engine.name in _engines or engine.name == REFERENCE:
        raise EngineError(f"engine '{engine.name}' is registered already")
    _engines[engine.name] = engine


def unregister_engine(name: str) -> None:
    """Forget an engine and its rows (tests)."""
    _engines.pop(name, None)
    for key in [k for k in _kernels if k[1] == name]:
        del _kernels[key]


def engine_names() -> list[str]:
    return [REFERENCE, *_engines]


def engine_ready(name: str) -> bool:
    """Load the engine if need be; False when it cannot run here (`engine_reason` tells why)."""
    if name == REFERENCE:
        return True
    engine = _engines.get(name)
    if engine is None:
        raise EngineError(f"unknown engine '{name}'; known: {', '.join(engine_names())}")
    if engine.state == "unloaded":
        try:
            engine.load()
            engine.state = "ready"
        except EngineError as error:
            engine.state, engine.reason = "absent", str(error)
    return engine.state == "ready"


def engine_reason(name: str) -> str:
    """Why the engine is absent, or ""."""
    return _engines[name].reason if name in _engines else ""


def engine_description(name: str) -> str:
    """What a ready engine says of itself (its version, its device), or ""."""
    return _engines[name].describe() if name in _engines else ""


def kernel(layer_type: str, engine: str) -> Callable[[_K], _K]:
    """Class decorator that adds a row to the table."""

    def decorate(cls: _K) -> _K:
        key = (layer_type, engine)
        if key in _kernels:
            raise EngineError(f"kernel {key} is registered already, by {_kernels[key].__qualname__}")
        cls.engine = engine
        _kernels[key] = cls
        return cls

    return decorate


def gpu_absence() -> str:
    """Why nothing can run on a GPU here, with the cure, or ""."""
    if "cuda" not in _engines:
        return "this installation has no GPU engine"
    return "" if engine_ready("cuda") else engine_reason("cuda")


def preferences(engine_field: str = "", mode: str | None = None) -> tuple[str, ...]:
    """Engines to try, best first, for a layer whose prototxt says `engine: engine_field`.

    context.engine(), usually CAFFE_ENGINE in the environment, overrides everything; `reference` there
    means NumPy alone. On a CPU the words CAFFE, CUDNN and Intel's MKL2017 and MKLDNN all mean "the
    fastest that gives the same numbers"; on a GPU, CAFFE asks for the plain kernels and CUDNN for the
    library's. Raises EngineError in GPU mode where there is no GPU to use.
    """
    override = context.engine()
    if override:
        if override != REFERENCE and override not in _engines:
            raise EngineError(f"CAFFE_ENGINE={override}: no such engine; known: {', '.join(engine_names())}")
        return () if override == REFERENCE else (override,)
    if (mode or context.mode()) == context.GPU:
        absence = gpu_absence()
        if absence:
            raise EngineError(
                f"Cannot use GPU in CPU-only Caffe: check mode. {absence}; to run on the CPU, call "
                "caffe.set_mode_cpu(), or leave out caffe.set_mode_gpu()"
            )
        wanted = ("cuda",) if engine_field == "CAFFE" else ("cudnn", "cuda")
    else:
        wanted = ("onednn",)
    return tuple(name for name in wanted if name in _engines)


def select(layer: Layer, bottom: Sequence[Blob], wanted: Sequence[str]) -> type[Kernel]:
    """The kernel class for this layer on bottoms of these shapes."""
    for name in wanted:
        if engine_ready(name):
            row = _kernels.get((layer.type, name))
            if row is not None and row.supports(layer, bottom):
                return row
    return PythonKernel if layer.is_python else ReferenceKernel


def plan(steps: Sequence[Any]) -> list[Any]:
    """The steps of a net in order, those that an engine can run as one replaced by a Fused."""
    runners, i = [], 0
    while i < len(steps):
        engine = _engines.get(steps[i].kernel.engine)
        fused = engine.fuse(steps, i) if engine is not None else None
        runners.append(steps[i] if fused is None else fused)
        i += 1 if fused is None else len(fused.steps)
    return runners


def passes(runners: Sequence[Any], ends: Sequence[End], kept: Set[SyncedMem]) -> list[tuple[Any, End]]:
    """A plan for whole passes forward: runners of `plan` with what is given up after each, runs of those that
    an engine can repeat made one, which gives up what its members would.

    kept: arrays that are read after each pass."""
    found: list[tuple[Any, End]] = []
    i = 0
    while i < len(runners):
        j, engine = i, None
        while j < len(runners) and repeatable(runners[j]):
            steps = runners[j].steps if isinstance(runners[j], Fused) else (runners[j],)
            names = {s.kernel.engine for s in steps} - {REFERENCE}
            if names - {engine} and engine is not None:
                break
            engine = next(iter(names), engine)
            j += 1
        repeat = _engines[engine].repeat if engine is not None else None
        # Others that take memory from the same pool need it given back as it goes.
        alone = not any(ends[:i]) and not any(ends[j:])
        if repeat is not None and alone:
            found.append((repeat(runners[i:j], ends[i:j] or [[]] * (j - i), kept), ()))
            i = j
            continue
        j = max(j, i + 1)
        found += [(runners[k], ends[k] if ends else ()) for k in range(i, j)]
        i = j
    return found


def repeatable(runner: Any) -> bool:
    """May an engine repeat what this step or group did in its last forward?"""
    if isinstance(runner, Fused):
        return runner.repeatable
    if runner.losses or runner.layer.reshape_every_pass:
        return False
    return runner.kernel.repeatable or runner.layer.forward_does_nothing


def find(type: str, wanted: Sequence[str]) -> type[UpdateKernel] | None:
    """The first row for a solver's type among the engines wanted, or None: then the solver's own NumPy."""
    for name in wanted:
        if engine_ready(name) and (type, name) in _kernels:
            return _kernels[(type, name)]
    return None
