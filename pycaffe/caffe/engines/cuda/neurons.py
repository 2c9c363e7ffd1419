"""Layers that compute each element from its counterpart: one .cu file each, the same Python for all."""

from __future__ import annotations

from collections.abc import Sequence

from ...blob import Blob
from ...execution import ExecutionContext
from ...kernels import kernel
from .base import CudaKernel, arithmetic, keep
from .place import Buffer, read, write


class Neuron(CudaKernel):
    """forward(n, x, y, *constants), backward(n, x, y, dy, dx, *constants)"""

    def constants(self) -> tuple[float, ...]:
        return ()

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._constants = self.constants()

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = read(bottom[0].data_mem)
        self.code.forward.elements(bottom[0].count, x, write(top[0].data_mem), *self._constants)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if propagate_down[0]:
            x, y, dy = read(bottom[0].data_mem), read(top[0].data_mem), read(top[0].diff_mem)
            self.code.backward.elements(
                bottom[0].count, x, y, dy, write(bottom[0].diff_mem), *self._constants
            )


@kernel("AbsVal", engine="cuda")
class AbsValKernel(Neuron):
    source = "absval"


@kernel("BNLL", engine="cuda")
class BNLLKernel(Neuron):
    source = "bnll"


@kernel("Sigmoid", engine="cuda")
class SigmoidKernel(Neuron):
    source = "sigmoid"


@kernel("TanH", engine="cuda")
class TanHKernel(Neuron):
    source = "tanh"


@kernel("ReLU", engine="cuda")
class ReLUKernel(Neuron):
    source = "relu"

    def constants(self) -> tuple[float, ...]:
        return (self.layer.negative_slope,)


@kernel("ELU", engine="cuda")
class ELUKernel(Neuron):
    source = "elu"

    def constants(self) -> tuple[float, ...]:
        return (self.layer.alpha,)


@kernel("Clip", engine="cuda")
class ClipKernel(Neuron):
    source = "clip"

    def constants(self) -> tuple[float, ...]:
        return (self.layer.min, self.layer.max)


@kernel("Exp", engine="cuda")
class ExpKernel(Neuron):
    source = "exp"

    def constants(self) -> tuple[float, ...]:
        return (self.layer.inner_scale, self.layer.inner_shift)


@kernel("Log", engine="cuda")
class LogKernel(Neuron):
    source = "log"

    def constants(self) -> tuple[float, ...]:
        return (self.layer.scale, self.layer.shift, self.layer.factor)


@kernel("Swish", engine="cuda")
class SwishKernel(CudaKernel):
    source = "swish"
    _gate: Buffer | None = None

    def reshape(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._gate = keep(self._gate, bottom[0].count)

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        assert self._gate is not None
        x = read(bottom[0].data_mem)
        self.code.forward.elements(
            bottom[0].count, x, write(top[0].data_mem), self._gate.address, self.layer.beta
        )

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        assert self._gate is not None
        if propagate_down[0]:
            y, dy = read(top[0].data_mem), read(top[0].diff_mem)
            dx = write(bottom[0].diff_mem)
            self.code.backward.elements(bottom[0].count, y, self._gate.address, dy, dx, self.layer.beta)


@kernel("Threshold", engine="cuda")
class ThresholdKernel(CudaKernel):
    source = "threshold"

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = read(bottom[0].data_mem)
        self.code.forward.elements(bottom[0].count, x, write(top[0].data_mem), self.layer.threshold)


@kernel("Power", engine="cuda")
class PowerKernel(CudaKernel):
    source = "power"

    def forward(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        layer, x = self.layer, read(bottom[0].data_mem)
        y = write(top[0].data_mem)
        self.code.forward.elements(bottom[0].count, x, y, layer.power, layer.scale, layer.shift)

    def backward(
        self,
        run: ExecutionContext,
        top: Sequence[Blob],
        propagate_down: Sequence[bool],
        bottom: Sequence[Blob],
    ) -> None:
        if not propagate_down[0]:
            return
        layer, count = self.layer, bottom[0].count
        if layer.in_place_chain and layer.power == 1 and top[0] is bottom[0]:
            arithmetic().fill.elements(count, write(bottom[0].diff_mem), layer.scale**2)
            return
        dy = read(top[0].diff_mem)
        dx = write(bottom[0].diff_mem)
        if layer.constant_gradient:
            arithmetic().scaled.elements(count, dy, dx, layer.power * layer.scale)
        else:
            x = read(bottom[0].data_mem)
            self.code.backward.elements(count, x, dy, dx, layer.power, layer.scale, layer.shift)
