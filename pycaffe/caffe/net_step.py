"""Step: one layer as a net runs it; and the order of steps."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
from google.protobuf.message import Message

from . import context, kernels
from .blob import Blob
from .errors import ShapeError
from .execution import ExecutionContext
from .kernels import Kernel
from .layer import Layer
from .proto import caffe_pb2

log = logging.getLogger("caffe.net")


class Step:
    """One layer's place in the net: its kernel, its blobs, and the shapes it was last prepared for."""

    __slots__ = (
        "layer",
        "kernel",
        "bottom",
        "top",
        "propagate_down",
        "wanted",
        "losses",
        "_shapes",
        "_params",
        "_always",
    )

    def __init__(self, layer: Layer, bottom: list[Blob], top: list[Blob], propagate_down: list[bool]):
        self.layer, self.bottom, self.top, self.propagate_down = layer, bottom, top, propagate_down
        self.losses = [t for t, w in zip(top, layer.loss_weights, strict=True) if w]
        self.wanted = kernels.preferences(_engine_field(layer.layer_param))
        self.kernel: Kernel = kernels.ReferenceKernel(layer)
        self._always = layer.reshape_every_pass
        self._shapes: list[tuple[Blob, tuple[int, ...]]] = []
        # A layer of users may give its parameters other shapes later.
        self._params = [] if layer.is_python else [(blob, blob.shape) for blob in layer.blobs]

    def prepare(self, run: ExecutionContext) -> None:
        """After the layer has shaped its tops: choose the kernel and let it prepare."""
        chosen = kernels.select(self.layer, self.bottom, self.wanted)
        if type(self.kernel) is not chosen:
            self.kernel = chosen(self.layer, self.propagate_down)
            for blob in (*self.bottom, *self.top):
                # What may be given up was decided for the other kernel: nothing is, until the net plans anew.
                blob.data_mem.pool = None
        self.kernel.reshape(run, self.bottom, self.top)
        params = (blob for blob, _ in self._params)
        self._shapes = [(b, b.shape) for b in dict.fromkeys((*self.bottom, *self.top, *params))]

    def reshape(self, run: ExecutionContext) -> None:
        self._check_params()
        self.layer.reshape(self.bottom, self.top)
        self.prepare(run)

    def _check_params(self) -> None:
        for i, (blob, shape) in enumerate(self._params):
            if blob.shape is not shape and blob.shape != shape:
                raise self.layer.error(
                    f"parameter {i} was reshaped to {blob.shape}, and the layer works with {shape}: reshape "
                    "it back, or give the layer's definition the other sizes",
                    ShapeError,
                )

    @property
    def outdated(self) -> bool:
        """Must reshape come before forward?"""
        if self._always:
            return True
        for blob, shape in self._shapes:
            if blob.shape is not shape:
                return True
        return False

    def forward(self, run: ExecutionContext) -> float:
        """Run the layer; returns its part of the objective."""
        if self.outdated:
            self.reshape(run)
        self.kernel.forward(run, self.bottom, self.top)
        loss = 0.0
        for blob in self.losses:
            data, weight = blob.cpu_data(), blob.cpu_diff()
            loss += data.item() * weight.item() if data.size == 1 else float(np.vdot(data, weight))
        return loss

    def check_shapes(self) -> None:
        """Before backward: raise where a blob has another shape than in forward."""
        self._check_params()
        if self._always:  # its tops get their shapes in forward
            return
        for blob, shape in self._shapes:
            if blob.shape is not shape and blob.shape != shape:
                what = "bottom" if blob in self.bottom else "top"
                i = (self.bottom if what == "bottom" else self.top).index(blob)
                raise self.layer.error(
                    f"{what} {i} was reshaped from {shape} to {blob.shape} since the last forward pass: run "
                    "forward before backward",
                    ShapeError,
                )

    def backward(self, run: ExecutionContext) -> None:
        self.kernel.backward(run, self.top, self.propagate_down, self.bottom)


Runner = Step | kernels.Fused


def _engine_field(param: caffe_pb2.LayerParameter) -> str:
    """What the layer's own parameters say as `engine:`, or ""."""
    for _, value in param.ListFields():
        if isinstance(value, Message):
            engine = value.DESCRIPTOR.fields_by_name.get("engine")
            if engine is not None and engine.enum_type is not None and value.HasField("engine"):
                return engine.enum_type.values_by_number[getattr(value, engine.name)].name
    return ""


def backward_order(
    plan: Sequence[Runner], steps: Sequence[Step], needed: Sequence[bool]
) -> list[tuple[Sequence[int], Runner]]:
    """Of a whole backward pass, what runs and which steps that covers, last step first."""
    order: list[tuple[Sequence[int], Runner]] = []
    last = len(steps) - 1
    for runner in reversed(plan):
        count = len(runner.steps) if isinstance(runner, kernels.Fused) else 1
        indices = range(last, last - count, -1)
        if isinstance(runner, kernels.Fused) and runner.fuses_backward and all(needed[i] for i in indices):
            order.append((indices, runner))
        else:
            order += [((i,), steps[i]) for i in indices]
        last -= count
    return order


def log_fallbacks(steps: Sequence[Step]) -> None:
    """Tell the engines that are not there, and the layers that wanted one which has no kernel for them."""
    for name in dict.fromkeys(name for step in steps for name in step.wanted):
        if not kernels.engine_ready(name):
            level = logging.WARNING if context.engine() == name else logging.INFO
            log.log(level, "engine %s is not used: %s", name, kernels.engine_reason(name))
    fallen: dict[tuple[str, str], int] = {}
    for step in steps:
        if step.wanted and step.kernel.engine == kernels.REFERENCE:
            ready = [name for name in step.wanted if kernels.engine_ready(name)]
            if ready:
                key = (step.layer.type, ready[0])
                fallen[key] = fallen.get(key, 0) + 1
    for (layer_type, engine), count in fallen.items():
        log.debug(
            "%s: %d layer(s) run on NumPy, since engine %s has no kernel for them",
            layer_type,
            count,
            engine,
        )
