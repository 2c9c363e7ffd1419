"""Model: layers written down in Python, several nets over one set of parameters, and their training."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .. import context, net_weights
from ..callbacks import SolverCallback
from ..errors import CopyError
from ..execution import ExecutionContext
from ..kernels import engine_names
from ..net import Net
from ..proto import caffe_pb2
from . import files, training
from .definition import Definition, in_phase
from .feed import FeedSource
from .graph import ModelError, ModelSource, Top
from .parameter_set import ParameterSet, checked_seed
from .recording import TEST, TRAIN, phase_of
from .running import ModelNet
from .training import History, Minimizer

if TYPE_CHECKING:
    from ._functions import ModelFunctions
else:
    ModelFunctions = object

_ambient = threading.local()
_default: list[Model] = []


class Model(ParameterSet, ModelFunctions):
    """A net in the making, and all nets that are made of it.

        with M.Model("lenet") as m:
            x, y = m.data("train_lmdb", batch_size=64, scale=1 / 255)
            h = m.max_pool(m.conv(x, 20, 5), 2)
            loss = m.softmax_loss(m.fc(h, 10), y)
        m.minimize(loss, "SGD", base_lr=0.01, momentum=0.9)
        m.fit(1000)

    Layer functions are its methods (functions.py; modules.py tells which more there are); within the `with`
    block, M.conv(...) means this model. Parameters exist once, whatever number of nets use them; they are
    drawn when the first net is made, from `seed` and the layers' names alone.

    name: the nets'. seed: of all random numbers; by default one that follows from caffe.set_random_seed, else
    any. device: "cpu", "gpu" or "gpu:1"; engine: "onednn", "reference", ...: for nets made from then on; by
    default what the process prefers.
    """

    def __init__(
        self, name: str = "", *, seed: int | None = None, device: str | None = None, engine: str | None = None
    ):
        super().__init__(name, _draw_seed() if seed is None else checked_seed(seed))
        self.device, self.engine = device, engine
        if device is not None:
            _device(device)
        if engine is not None and engine not in engine_names():
            raise ModelError(f"engine must be one of {', '.join(engine_names())}, not {engine!r}")
        self.feeds: dict[str, FeedSource] = {}
        self.nets: weakref.WeakSet[ModelNet] = weakref.WeakSet()
        self._run_nets: dict[Any, ModelNet] = {}
        self._minimizer: Minimizer | None = None

    @classmethod
    def from_proto(
        cls, net: str | os.PathLike[str] | caffe_pb2.NetParameter, weights: str = "", **options: Any
    ) -> Model:
        """The model of a prototxt (path or message, of any version), with all its names; to_proto() gives it
        back. weights: a .caffemodel or .h5. options: as of Model."""
        model = cls(**options)
        model.read(net)
        if weights:
            model.load(weights)
        return model

    # -- the ambient model ----------------------------------------------------------------------------

    def __enter__(self) -> Model:
        _stack().append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _stack().pop()

    # -- layer functions ------------------------------------------------------------------------------

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]:
            if name.startswith("_"):
                raise AttributeError(name)
            from . import modules

            try:
                function = modules.find(name)
            except ModelError as error:
                raise AttributeError(str(error)) from None
            return functools.wraps(function)(functools.partial(function, self))

        def __dir__(self) -> list[str]:
            from . import modules

            return sorted({*super().__dir__(), *modules.function_names()})

    def top_name(self, name: str) -> str:
        """The name for a blob of data: as given while it is free."""
        return self.unique_name(name) if name in self._top_names or self._scopes else name

    def changed(self) -> None:
        super().changed()
        self._run_nets.clear()

    # -- nets -----------------------------------------------------------------------------------------

    def net(
        self,
        phase: str | int = "test",
        outputs: Sequence[Top] | Top | None = None,
        inputs: Sequence[Top] | Top = (),
        *,
        force_backward: bool = False,
    ) -> ModelNet:
        """A net over the model's parameters.

        phase: "train", "test", or "deploy": without data, losses and metrics, from inputs to scores.
        outputs: the tops that a call returns; only what they need is in the net. By default all that nobody
        takes. inputs: tops to feed by hand. force_backward: compute the inputs' gradients, too, and let
        backward begin anywhere. Raises ModelError, and LayerError with the Python line of the layer.
        """
        wanted = None if outputs is None else self.own_tops("outputs", outputs)
        definition = self.define(phase, wanted, self.own_tops("inputs", inputs))
        if force_backward:
            definition.param.force_backward = True
        number = TEST if phase == "deploy" else phase_of(phase)
        with self.settings():
            net = self.build(definition, number, ExecutionContext((self.seed, 0)), wanted)
        self.nets.add(net)
        return net

    def build(
        self,
        definition: Definition,
        phase: int,
        run: ExecutionContext,
        outputs: Sequence[Top] | None = None,
        solver_net: bool = False,
    ) -> ModelNet:
        """The net of a definition, with the model's parameters."""
        source = ModelSource(self._places, self.name)
        net = ModelNet(self, definition, phase, run, outputs, source)
        self._values.attach(net)
        self.check_created()
        if self._shapes is None and solver_net:
            self._note_shapes(net, definition)
        return net

    def _discover(self) -> None:
        """Make sure that there are values and shapes: build the nets of both phases, once."""
        if self._shapes is not None:
            return
        self._shapes = {}
        for phase in (TRAIN, TEST):
            definition = self.define("train" if phase == TRAIN else "test")
            missing = [name for t, name in definition.names.items() if t not in self._shapes]
            present = {name for layer in definition.param.layer for name in layer.top}
            if phase == TEST and not present.intersection(missing) and self._values:
                break
            try:
                with self.settings():
                    net = self.build(definition, phase, ExecutionContext((self.seed, 0)))
            except BaseException:
                self._shapes = None
                raise
            self._note_shapes(net, definition)

    def _begin_anew(self) -> None:
        if self._minimizer is not None:
            self._minimizer = Minimizer(self, self._minimizer.param)

    def _note_shapes(self, net: ModelNet, definition: Definition) -> None:
        if self._shapes is None:
            self._shapes = {}
        for top, name in definition.names.items():
            if name in net.blobs:
                self._shapes.setdefault(top, net.blobs[name].shape)

    def shape_of(self, top: Top) -> tuple[int, ...]:
        self._discover()
        assert self._shapes is not None
        if top not in self._shapes:
            raise ModelError(f"'{top.name}' ({top.layer.place}) is in no net of the model")
        return self._shapes[top]

    def run(
        self,
        net: ModelNet | Top | Sequence[Top],
        feed: Mapping[Top, Any] | None = None,
        phase: str | int = "test",
    ) -> Any:
        """Arrays of outputs: of a net, or of a top (a list of tops), for which the net is found by itself.

        feed: {top: array}; what stands below these tops is not run. One array, or a tuple of them; they are
        copies. phase: for tops. Raises ModelError for what is neither, and what nets raise.
        """
        if isinstance(net, Net) and (not isinstance(net, ModelNet) or net.model is not self):
            raise ModelError("run takes nets that m.net() has made, and tops; call another net's forward()")
        if feed is not None and not isinstance(feed, Mapping):
            raise ModelError(f"feed must be a dict {{top: array}}, not {type(feed).__name__}")
        if not isinstance(net, ModelNet):
            outputs, inputs = self.own_tops("outputs", net), self.own_tops("the keys of feed", feed or ())
            key = (outputs, inputs, phase)
            if key not in self._run_nets:
                self._run_nets[key] = self.net(phase, outputs, inputs)
            net = self._run_nets[key]
        result = net(dict(feed)) if feed else net()
        return tuple(np.array(r) for r in result) if isinstance(result, tuple) else np.array(result)

    @contextmanager
    def settings(self) -> Iterator[None]:
        """The model's device and engine, for nets that this thread builds within."""
        gpu, ordinal = (None, None) if self.device is None else _device(self.device)
        mode = None if gpu is None else context.GPU if gpu else context.CPU
        with context.using(mode=mode, device=ordinal, engine=self.engine):
            yield

    def weights_net(self) -> ModelNet:
        """A training net, for its parameters: the solver's, where there is one."""
        solver = self._minimizer.made if self._minimizer is not None else None
        return self.net("train") if solver is None else solver.net  # type: ignore[return-value]

    def load(self, weights: str | os.PathLike[str]) -> None:
        """Copy parameters by layer name from a .caffemodel or .h5. A training that begins with them is saved
        with them: see save."""
        net_weights.copy_from(self.weights_net(), str(weights))

    # -- training -------------------------------------------------------------------------------------

    def minimize(
        self,
        loss: Top | Mapping[Top, float] | Iterable[Top] | None = None,
        type: str = "SGD",
        *,
        base_lr: float | None = None,
        **fields: Any,
    ) -> Minimizer:
        """Say how to train: the objective, the solver's type, and fields of SolverParameter (momentum,
        weight_decay, lr_policy ("fixed" by default), gamma, iter_size, clip_gradients ...).

        loss: a top, several, or {top: weight}; None for the losses as they are. Parameters keep their values;
        a training that was under way ends. Raises ModelError, NetSpecError for unknown fields, SolverError
        for an unknown type.
        """
        if base_lr is not None:
            fields["base_lr"] = base_lr
        self._minimizer = training.minimizer(self, loss, type, fields)
        return self._minimizer

    @property
    def minimizer(self) -> Minimizer:
        """What minimize has said last. Raises ModelError when it was not called."""
        if self._minimizer is None:
            raise ModelError(
                "the model does not know how to train: call m.minimize(loss, 'SGD', base_lr=...)"
            )
        return self._minimizer

    def fit(
        self,
        iterations: int,
        *,
        test_every: int = 0,
        test_batches: int | None = None,
        display: int | None = None,
        snapshot: int = 0,
        snapshot_prefix: str = "",
        resume: str = "",
        callbacks: Iterable[SolverCallback] = (),
        progress: bool | None = None,
    ) -> History:
        """Train for so many iterations, exactly as `caffe train` does; called again, it goes on.

        test_every: test after so many iterations, and at the beginning and end; test_batches: how many
        batches (default: the test data once). display: log the loss this often. snapshot: write one this
        often, and at the end, under snapshot_prefix. resume: a .solverstate to go on from; then `iterations`
        counts from the training's very beginning. progress: draw a bar (default: on a terminal).
        Returns the curves of this call. Raises SolverError, SnapshotError and what nets raise.
        """
        return training.fit(
            self,
            iterations,
            test_every=test_every,
            test_batches=test_batches,
            display=display,
            snapshot=snapshot,
            snapshot_prefix=snapshot_prefix,
            resume=resume,
            callbacks=callbacks,
            progress=progress,
        )

    def count_test_batches(self) -> int:
        """How many batches the test data have. Raises ModelError where nobody knows."""
        from .sources import count_batches

        counts = [count_batches(call, self.feeds) for call in in_phase(self.layers, TEST)]
        known = [count for count in counts if count]
        if not known:
            raise ModelError("how many test batches there are is not known: give fit(..., test_batches=...)")
        return min(known)

    # -- files ----------------------------------------------------------------------------------------

    def save(
        self,
        net: str | os.PathLike[str] = "",
        weights: str | os.PathLike[str] = "",
        solver: str | os.PathLike[str] = "",
    ) -> None:
        """Write plain files: `caffe train -solver <solver>` gives what m.fit gives, bit for bit.

        net: the prototxt of all phases; arrays go into HDF5 files beside it. weights: a .caffemodel (or .h5)
        with the parameters as they are. solver: the prototxt of the training, as minimize and fit have it;
        where it began with other parameters than those that the net draws (loaded, written by hand, trained
        before), they are in "<solver>_start.caffemodel", which the solver's `weights` names.
        Raises ModelError for data that only this program has.
        """
        files.save(self, str(net), str(weights), str(solver))

    def __reduce__(self) -> NoReturn:
        raise CopyError(
            "a Model cannot be copied or pickled: m.save(net, weights) writes it, and "
            "M.from_proto(net, weights) reads it"
        )

    def __repr__(self) -> str:
        return f"<caffe.model.Model '{self.name}': {len(self.layers)} layers>"


def _stack() -> list[Model]:
    if not hasattr(_ambient, "stack"):
        _ambient.stack = []
    return _ambient.stack


def current() -> Model:
    """The model of the innermost `with` block of this thread; without one, the process-wide default."""
    if _stack():
        return _stack()[-1]
    if not _default:
        _default.append(Model("default"))
    return _default[0]


def reset_default() -> None:
    """Forget the process-wide default model: the next layer begins another."""
    _default.clear()


def _draw_seed() -> int:
    seed, ordinal = context.next_net_seed()
    return (seed + 0x9E3779B97F4A7C15 * ordinal) % 2**62


def _device(text: str) -> tuple[bool, int]:
    kind, _, number = text.partition(":") if isinstance(text, str) else ("", "", "")
    if kind not in ("cpu", "gpu", "cuda") or (number and not number.isdigit()):
        raise ModelError(f"device must be 'cpu', 'gpu' or 'gpu:<number>', not {text!r}")
    return kind != "cpu", int(number or 0)
