"""Net: layers connected by blobs, run forward and backward."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from . import context, debug_info, kernels, net_memory, net_weights
from .blob import Blob
from .errors import CaffeError, LayerError, NetError
from .execution import ExecutionContext
from .kernels import Kernel
from .layer import Layer
from .net_calls import HOOKS, Callback, NetCalls
from .net_insertion import filter_net, insert_splits
from .net_source import NetSource
from .net_step import Runner, Step, backward_order, log_fallbacks
from .net_wiring import LearnableParam, Wiring
from .places import Pool
from .proto import caffe_pb2
from .synced_mem import SyncedMem
from .upgrade_proto import read_net_upgraded, upgrade_net

log = logging.getLogger("caffe.net")

TRAIN, TEST = caffe_pb2.TRAIN, caffe_pb2.TEST


class Net(NetCalls):
    """A net in one phase.

    Net(model, phase), Net(model, weights, phase), Net(model, phase, weights=..., level=0, stages=[...])

    model: path of a prototxt, or a NetParameter. phase: caffe.TRAIN or caffe.TEST. weights: a
    .caffemodel or .h5, copied by layer name. level, stages: what include/exclude rules are matched
    against. allow_python: False refuses Python layers, which run code of the module that they name.
    source: the file that a NetParameter came from (or a NetSource), for error messages. run: the context of
    a net that holds this one. keep_blobs (also an attribute): False lets layers use each other's memory once
    nobody in the net needs it: reading such a blob raises NetError. In the TEST phase the net then runs
    forward only; in the TRAIN phase what the backward pass reads stays. keep_diffs (an attribute, True):
    False does that for the gradients of blobs, parameters' not included, in whole backward passes.

    blobs, params, layers and layer_dict are what the names say; `blobs['data'].data[...] = x` feeds an
    input. Gradients: backward() computes what a loss and a parameter to learn make necessary; the
    gradient of an input needs `force_backward: true` in the definition.

    Raises ParseError, NetError and LayerError for definitions that make no net, WeightsError for
    weights that do not fit.
    """

    def __init__(
        self,
        model: str | Path | caffe_pb2.NetParameter | None = None,
        *args: Any,
        phase: int | None = None,
        level: int | None = None,
        stages: Iterable[str] | None = None,
        weights: str | Path | None = None,
        allow_python: bool = True,
        keep_blobs: bool = True,
        network_file: str | Path | None = None,
        run: ExecutionContext | None = None,
        source: str | NetSource = "",
    ):
        model = network_file if model is None else model
        if model is None:
            raise TypeError("Net(model, phase): the first argument is the path of a prototxt")
        phase, level, stages, weights = _placed(args, phase, level, stages, weights)
        if phase is None:
            raise TypeError(
                "Net(model, phase) or Net(model, weights, phase): give caffe.TRAIN or caffe.TEST as the phase"
            )
        if phase not in (TRAIN, TEST):
            raise NetError(f"phase must be caffe.TRAIN (0) or caffe.TEST (1), not {phase!r}")
        if level is not None and not isinstance(level, (int, np.integer)):
            raise NetError(f"level must be a whole number, not {level!r}")
        if isinstance(stages, str):
            raise NetError(f"stages must be names, such as [{stages!r}], not the text {stages!r}")

        if not isinstance(source, NetSource):
            source = NetSource(source if isinstance(model, caffe_pb2.NetParameter) else str(model))
        self._source = source
        if isinstance(model, caffe_pb2.NetParameter):
            param = caffe_pb2.NetParameter()
            param.CopyFrom(model)
            upgrade_net(param, "NetParameter")
        else:
            param = read_net_upgraded(str(model))
        param.state.phase = int(phase)  # type: ignore[assignment]
        if level is not None:
            param.state.level = level
        if stages is not None:
            param.state.stage.extend(s for s in stages if s not in param.state.stage)
        self.allow_python, self._keep_blobs, self._keep_diffs = allow_python, keep_blobs, True
        self._build(param, run)
        if weights is not None:
            for path in str(weights).split(","):
                self.copy_from(path.strip())

    # -- building ---------------------------------------------------------------------------------

    def _build(self, param: caffe_pb2.NetParameter, run: ExecutionContext | None) -> None:
        filtered = filter_net(param)
        if log.isEnabledFor(logging.INFO):
            log.info("Initializing net from parameters: \n%s", filtered)
        self.param = insert_splits(filtered)
        self.name: str = self.param.name
        self.phase: int = self.param.state.phase
        self.debug_info: bool = self.param.debug_info
        self.run = run or ExecutionContext(context.next_net_seed())
        _check_python(self.param, self.allow_python, self._source)
        self._wiring = wiring = Wiring(self.param, self.run, partial(_subnet, self.run), self._source)
        self.layers: list[Layer] = wiring.layers
        self.layer_dict: OrderedDict[str, Layer] = OrderedDict(
            zip(wiring.layer_names, wiring.layers, strict=True)
        )
        self.blobs: OrderedDict[str, Blob] = OrderedDict(zip(wiring.blob_names, wiring.blobs, strict=True))
        self.params: OrderedDict[str, list[Blob]] = OrderedDict(
            (layer.name, layer.blobs) for layer in wiring.layers if layer.blobs
        )
        self.learnable: list[LearnableParam] = wiring.learnable
        self.inputs: list[str] = wiring.inputs
        self.outputs: list[str] = wiring.outputs
        self.memory_used: int = wiring.memory_used
        self._steps = [
            Step(
                layer,
                self._pick(wiring.bottom_ids[i]),
                self._pick(wiring.top_ids[i]),
                wiring.bottom_need_backward[i],
            )
            for i, layer in enumerate(wiring.layers)
        ]
        self._first_user = {min(p.users): [] for p in self.learnable}
        for p in self.learnable:
            self._first_user[min(p.users)].append(p)
        self._hooks: dict[str, list[Callback]] = {k: [] for k in HOOKS}
        self._mems: list[SyncedMem] = []
        self._planned: list[Kernel] = []
        self._passes: list[tuple[Step | kernels.Fused, kernels.End]] = []
        self._plan: list[Runner] = []
        self._plan_back: list[tuple[Sequence[int], Runner]] = []
        self._data_ends: net_memory.Ends = []
        self._diff_ends: net_memory.Ends = []
        self._param_ends: list[list[SyncedMem]] = []
        self._pool, self._param_pool = Pool(), Pool(exact=True)
        for step in self._steps:
            step.prepare(self.run)
        self._after_wiring()
        log_fallbacks(self._steps)
        log.info("Network initialization done.")

    def _pick(self, ids: Sequence[int]) -> list[Blob]:
        return [self._wiring.blobs[i] for i in ids]

    def _after_wiring(self) -> None:
        """Note which memory other places may hold: only then do views need care around a pass. Plan whole
        passes, in which an engine may run neighbours as one."""
        kernels_now = [step.kernel for step in self._steps]
        if kernels_now != self._planned:
            self._planned, self._plan = kernels_now, kernels.plan(self._steps)
            self._plan_back = backward_order(self._plan, self._steps, self._wiring.layer_need_backward)
            self._plan_memory()
        if all(step.kernel.engine == kernels.REFERENCE for step in self._steps):
            self._mems = []
            return
        blobs = (*self._wiring.blobs, *(b for layer in self.layers for b in layer.blobs))
        self._mems = list(dict.fromkeys(m for b in blobs for m in (b.data_mem, b.diff_mem)))

    def _plan_memory(self) -> None:
        """What is given up on the way, in whole passes."""
        names = {id(b): name for b, name in zip(self._blobs, self._blob_names, strict=True)}
        own = {blob for step in self._steps if not step.bottom for blob in step.top}
        own |= {blob for step in self._steps for blob in step.losses}
        own |= {self.blobs[name] for name in self.outputs}
        own |= {blob for layer in self.layers for blob in layer.blobs}
        own |= {
            blob
            for step in self._steps
            if net_memory.is_written_by_a_user(step.layer)
            for blob in (*step.bottom, *step.top)
        }
        needed = self._wiring.layer_need_backward
        kept = {blob.data_mem for blob in own}
        self._data_ends = []
        if not self._keep_blobs:
            keep, smallest = kept, 0
            if not self._forward_only:
                keep, smallest = kept | net_memory.read_in_backward(self._steps, needed), net_memory.SMALL
            self._data_ends = net_memory.data_ends(self._plan, names, keep, self._pool, smallest)
        self._passes = kernels.passes(self._plan, self._data_ends, kept)
        self._diff_ends = []
        if not self._keep_diffs:
            # Memory that a repeated pass writes belongs to it, also while it is given up.
            given = sum(len(ends) for ends in self._data_ends)
            repeated = sum(len(ends) for _, ends in self._passes) < given
            pool = Pool() if repeated else self._pool
            order = [(runner, any(needed[i] for i in indices)) for indices, runner in self._plan_back]
            keep = [blob.diff_mem for blob in own]
            self._diff_ends = net_memory.diff_ends(order, names, keep, pool)
            self._param_ends = net_memory.param_ends(order, self._param_pool)

    @property
    def _forward_only(self) -> bool:
        return not self._keep_blobs and self.phase == TEST

    @property
    def keep_blobs(self) -> bool:
        return self._keep_blobs

    @keep_blobs.setter
    def keep_blobs(self, keep: bool) -> None:
        self._keep_blobs = bool(keep)
        self._plan_memory()

    @property
    def keep_diffs(self) -> bool:
        return self._keep_diffs

    @keep_diffs.setter
    def keep_diffs(self, keep: bool) -> None:
        self._keep_diffs = bool(keep)
        self._plan_memory()

    # -- running ------------------------------------------------------------------------------------

    def run_forward(self, start: int = 0, end: int | None = None) -> float:
        """Run layers start..end (inclusive); returns the objective of those layers."""
        run, steps = self.run, self._steps[start : None if end is None else end + 1]
        run.sub_iteration += 1
        for mem in self._mems:
            if mem.viewed is not None:
                mem.host_written()
        loss, step = 0.0, None
        try:
            if self._hooks["before_forward"] or self._hooks["after_forward"] or self.debug_info:
                self._forget_passes()
                for i, step in enumerate(steps, start):
                    self._call("before_forward", i)
                    loss += step.forward(run)
                    if self.debug_info:
                        debug_info.log_forward(self, i)
                    self._call("after_forward", i)
            elif len(steps) == len(self._steps):
                for step, _ in self._passes:
                    if isinstance(step, kernels.Fused):
                        step.begin()
                for step, ends in self._passes:
                    loss += step.forward(run)
                    for mem, lost in ends:
                        mem.give_up(lost)
            else:
                self._forget_passes()
                for step in steps:
                    loss += step.forward(run)
        except CaffeError as error:
            self._place(error, step)
            raise
        finally:
            self.refresh_views()
        return loss

    def _forget_passes(self) -> None:
        for runner, _ in self._passes:
            if isinstance(runner, kernels.Fused):
                runner.forget()

    def run_backward(
        self,
        start: int | None = None,
        end: int = 0,
        on_param_ready: Callable[[LearnableParam], Any] | None = None,
    ) -> None:
        """Run layers start..end (inclusive, downwards). on_param_ready is called with each parameter
        as soon as its gradient is complete."""
        if self._forward_only:
            raise NetError(
                "this net is of the TEST phase and has keep_blobs=False, so that it runs forward only. Set "
                "`net.keep_blobs = True` before the forward pass"
            )
        start = len(self._steps) - 1 if start is None else start
        run, needed, step = self.run, self._wiring.layer_need_backward, None
        for mem in self._mems:
            if mem.viewed is not None:
                mem.host_written()
        hooked = bool(self._hooks["before_backward"] or self._hooks["after_backward"] or self.debug_info)
        whole = not hooked and start == len(self._steps) - 1 and end == 0
        order = self._plan_back if whole else [((i,), self._steps[i]) for i in range(start, end - 1, -1)]
        for _, step in order:
            if isinstance(step, kernels.Fused):
                step.begin_backward()
        try:
            for position, (indices, step) in enumerate(order):
                i = indices[0]
                if hooked:
                    self._call("before_backward", i)
                if needed[i]:
                    step.check_shapes()
                    step.backward(run)
                    if self.debug_info:
                        debug_info.log_backward(self, i)
                if hooked:
                    self._call("after_backward", i)
                if on_param_ready is not None:
                    for i in indices:
                        for param in self._first_user.get(i, ()):
                            on_param_ready(param)
                if whole and self._diff_ends:
                    for mem, lost in self._diff_ends[position]:
                        mem.give_up(lost)
                    for mem in self._param_ends[position]:
                        mem.keep_one_copy()
            if self.debug_info and start == len(self._steps) - 1 and end == 0:
                debug_info.log_totals(self)
        except CaffeError as error:
            self._place(error, step)
            raise
        finally:
            self.refresh_views()

    _forward, _backward = run_forward, run_backward  # the original's names

    def _place(self, error: CaffeError, step: Runner | None) -> None:
        if isinstance(error, LayerError) and step is not None:
            error.layer = error.layer or step.layer.name
            error.layer_type = error.layer_type or step.layer.type
            error.place = error.place or self._source.locate(error.layer)

    def _call(self, hook: str, index: int) -> None:
        for function in self._hooks[hook]:
            for mem in self._mems:
                mem.refresh_view()
            function(index)
            for mem in self._mems:
                mem.host_written()

    def reshape(self) -> None:
        """Let every layer shape its tops anew (after `blobs['data'].reshape(...)`)."""
        step = None
        try:
            for step in self._steps:
                step.reshape(self.run)
        except CaffeError as error:
            self._place(error, step)
            raise
        self._after_wiring()

    def refresh_views(self) -> None:
        """Bring arrays that users hold up to date, after parameters were changed elsewhere than there."""
        for mem in self._mems:
            if mem.viewed is not None:
                mem.refresh_view()

    def clear_param_diffs(self) -> None:
        """Set the gradient of every parameter to zero; backward() adds to it."""
        for param in self.learnable:
            param.blob.diff_mem.clear()

    # -- weights ------------------------------------------------------------------------------------------

    def copy_from(self, source: str | Path | caffe_pb2.NetParameter) -> None:
        """Copy parameters by layer name from a .caffemodel, an .h5, or a NetParameter."""
        net_weights.copy_from(self, source)

    def save(self, path: str | Path) -> None:
        """Write the net with its parameters as a .caffemodel."""
        net_weights.save(self, path)

    def save_hdf5(self, path: str | Path) -> None:
        """Write the parameters as HDF5, which has no limit of 2 GB."""
        net_weights.save_hdf5(self, path)

    def load_hdf5(self, path: str | Path) -> None:
        """Copy parameters by layer name from an HDF5 file."""
        net_weights.load_hdf5(self, path)

    def share_with(self, other: Net) -> None:
        """Use other's parameters from now on, for layers of the same name."""
        net_weights.share_with(self, other)
        self._after_wiring()

    def to_proto(self, write_diff: bool = False) -> caffe_pb2.NetParameter:
        """The net's definition with its parameters in it; for large nets, save() is faster."""
        return net_weights.to_proto(self, write_diff)

    def __repr__(self) -> str:
        phase = "TRAIN" if self.phase == TRAIN else "TEST"
        return f"<caffe.Net '{self.name}' {phase}: {len(self.layers)} layers, {len(self.blobs)} blobs>"


def _subnet(run: ExecutionContext, param: caffe_pb2.NetParameter) -> Net:
    """The service for layers that hold a net: it must not keep their own net alive."""
    return Net(param, phase=param.state.phase, run=run)


def _placed(args: tuple[Any, ...], phase: Any, level: Any, stages: Any, weights: Any) -> tuple[Any, ...]:
    """(phase, level, stages, weights) of Net(model, phase, level, stages, weights) and of the older
    Net(model, weights, phase), with any of them by name."""
    given = {"phase": phase, "level": level, "stages": stages, "weights": weights}
    order = [*given]
    if args and isinstance(args[0], (str, PathLike)):
        order = ["weights", "phase", "level", "stages"]
    if len(args) > len(order):
        raise TypeError(f"Net(model, {', '.join(order)}) takes no {len(args) - len(order)} arguments more")
    for name, value in zip(order, args, strict=False):
        if given[name] is not None:
            raise TypeError(f"Net(model, {', '.join(order)}): {name} is given twice")
        given[name] = value
    return tuple(given.values())


def _check_python(param: caffe_pb2.NetParameter, allowed: bool, source: NetSource) -> None:
    if not allowed:
        for layer in param.layer:
            if layer.type == "Python":
                raise LayerError(
                    f"Python layers are refused (allow_python=False), since they run code of the module "
                    f"'{layer.python_param.module}'",
                    layer=layer.name,
                    layer_type="Python",
                    place=source.locate(layer.name),
                )
