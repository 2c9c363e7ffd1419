"""An engine with a place of its own, to prove what the core promises engines.

Its memory cannot be mistaken for the host's: arrays lie there in reverse order, or a matrix transposed,
inside Python objects that NumPy code cannot read by accident. Every copy is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from caffe.blob import Blob
from caffe.execution import ExecutionContext
from caffe.kernels import Engine, Kernel, UpdateKernel, kernel, register_engine
from caffe.layer import Layer
from caffe.net_wiring import LearnableParam

ENGINE = "fake"


class Hidden:
    """Memory of the place: `cells` in the place's own order."""

    def __init__(self, size: int):
        self.cells = np.full(size, np.nan, np.float32)


class FakePlace:
    """Layouts: ("reversed", n) and ("transposed", rows, columns)."""

    name = "fake"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def allocate(self, layout: Any) -> Hidden:
        self.counts["allocate"] += 1
        return Hidden(int(np.prod(layout[1:])))

    def from_host(self, host: np.ndarray, layout: Any, buffer: Hidden) -> None:
        self.counts["from_host"] += 1
        buffer.cells[...] = self._there(host, layout)

    def to_host(self, buffer: Hidden, layout: Any, host: np.ndarray) -> None:
        self.counts["to_host"] += 1
        host[...] = self._back(buffer.cells, layout)

    def convert(self, source: Hidden, source_layout: Any, target: Hidden, target_layout: Any) -> bool:
        self.counts["convert"] += 1
        target.cells[...] = self._there(self._back(source.cells, source_layout), target_layout)
        return True

    @staticmethod
    def _there(flat: np.ndarray, layout: Any) -> np.ndarray:
        return flat[::-1] if layout[0] == "reversed" else flat.reshape(layout[1:]).T.ravel()

    @staticmethod
    def _back(cells: np.ndarray, layout: Any) -> np.ndarray:
        return cells[::-1] if layout[0] == "reversed" else cells.reshape(layout[:0:-1]).T.ravel()


PLACE = FakePlace()


def reversed_layout(blob: Blob) -> tuple[str, int]:
    return ("reversed", blob.count)


def transposed(blob: Blob) -> tuple[str, int, int]:
    rows = blob.shape[0] if blob.num_axes else 1
    return ("transposed", rows, blob.count // max(1, rows))


class FakeKernel(Kernel):
    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        return bottom[0].dtype == np.float32

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return bottom

    @staticmethod
    def read(mem: Any, layout: Any) -> np.ndarray:
        return mem.read_in(PLACE, layout).cells

    @staticmethod
    def write(mem: Any, layout: Any) -> np.ndarray:
        return mem.write_in(PLACE, layout).cells

    @staticmethod
    def modify(mem: Any, layout: Any) -> np.ndarray:
        return mem.modify_in(PLACE, layout).cells


@kernel("ReLU", engine=ENGINE)
class FakeReLU(FakeKernel):
    """Works only without a negative slope."""

    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        return super().supports(layer, bottom) and layer.layer_param.relu_param.negative_slope == 0

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layout = reversed_layout(bottom[0])
        values = self.read(bottom[0].data_mem, layout).copy()
        self.write(top[0].data_mem, layout)[...] = np.maximum(values, 0)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if propagate_down[0]:
            layout = reversed_layout(bottom[0])
            on = self.read(bottom[0].data_mem, layout) > 0
            diff = self.read(top[0].diff_mem, layout) * on
            self.write(bottom[0].diff_mem, layout)[...] = diff


@kernel("InnerProduct", engine=ENGINE)
class FakeInnerProduct(FakeKernel):
    """Keeps its weights transposed; works only with axis 1 and a bias."""

    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        param = layer.layer_param.inner_product_param
        return super().supports(layer, bottom) and param.axis == 1 and param.bias_term and not param.transpose

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        weight, bias = self.layer.blobs
        outputs, inputs = weight.shape
        x = self.read(bottom[0].data_mem, transposed(bottom[0])).reshape(inputs, -1)
        w = self.read(weight.data_mem, transposed(weight)).reshape(inputs, outputs)
        b = self.read(bias.data_mem, reversed_layout(bias))[::-1]
        y = w.T @ x + b[:, None]
        self.write(top[0].data_mem, transposed(top[0]))[...] = y.ravel()

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        weight, bias = self.layer.blobs
        outputs, inputs = weight.shape
        dy = self.read(top[0].diff_mem, transposed(top[0])).reshape(outputs, -1)
        x = self.read(bottom[0].data_mem, transposed(bottom[0])).reshape(inputs, -1)
        if self.layer.param_propagate_down[0]:
            self.modify(weight.diff_mem, transposed(weight))[...] += (x @ dy.T).ravel()
        if self.layer.param_propagate_down[1]:
            self.modify(bias.diff_mem, reversed_layout(bias))[...] += dy.sum(axis=1)[::-1]
        if propagate_down[0]:
            w = self.read(weight.data_mem, transposed(weight)).reshape(inputs, outputs)
            self.write(bottom[0].diff_mem, transposed(bottom[0]))[...] = (w @ dy).ravel()


@kernel("SGD", engine=ENGINE)
class FakeSGD(UpdateKernel):
    """L2 only; data, diff and history stay in the place."""

    def supports(self, param: LearnableParam, history: Sequence[Blob]) -> bool:
        return self.solver.param.regularization_type == "L2"

    def update(
        self, param: LearnableParam, history: Sequence[Blob], scale: float, decay: float, rate: float
    ) -> None:
        layout = reversed_layout(param.blob)
        mems = (param.blob.data_mem, param.blob.diff_mem, history[0].data_mem)
        w, g, v = (mem.modify_in(PLACE, layout).cells for mem in mems)
        g[...] = rate * (scale * g + decay * w) + self.solver.param.momentum * v
        v[...] = g
        w -= g


register_engine(Engine(ENGINE, load=lambda: None, describe=lambda: "test engine"))
