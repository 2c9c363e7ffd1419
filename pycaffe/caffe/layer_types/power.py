"""Power: shift, scale and raise to a power."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer_registry import register_layer
from ._neuron import NeuronLayer

# NumPy's own special cases: 1, x, x², √x, 1/x.
_FAST = (0, 1, 2, 0.5, -1)
_MOST_PRODUCTS = 32


@register_layer("Power")
class PowerLayer(NeuronLayer):
    """y = (shift + scale · x) ^ power.

    bottom[0]: any shape; with a power that is no integer, shift + scale · x must not be negative (NaN).
    top[0]: the same shape; may be the bottom, where a gradient is needed only if that is constant.
    power_param: power (default 1), scale (1), shift (0): any real.
    Gradient: power · scale · (shift + scale · x) ^ (power - 1) · dy, the true one also in place with
    power 1 and where the base is 0. (The original gives the constant scale² in place, whatever dy is, and
    0/0 at base 0.) Only where several layers work in place on one blob, so that what the earlier ones
    need is overwritten anyway, is the original's constant kept: docs/differences.md.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.power_param
        self.power, self.scale, self.shift = param.power, param.scale, param.shift
        self.constant_gradient = self.power in (0, 1) or self.scale == 0

    def in_place_refusal(self) -> str:
        if self.constant_gradient:
            return ""
        return (
            f"with power_param.power (={self.power:g}) its gradient needs the bottom's values, which working "
            "in place overwrites"
        )

    def _raise(self, x: np.ndarray, power: float, out: np.ndarray) -> None:
        """out = (shift + scale · x) ^ power"""
        np.multiply(x, self.scale, out=out)
        out += self.shift
        if power in _FAST:
            out **= power
        elif power.is_integer() and abs(power) <= _MOST_PRODUCTS:
            self._multiply(out, int(power))
        else:
            np.power(out, power, out=out)

    def _multiply(self, out: np.ndarray, power: int) -> None:
        """out **= power by repeated squaring: pow() of the C library is slow where the base is negative."""
        base = self.scratch(out)
        np.copyto(base, out)
        rest = abs(power) - 1
        while rest:
            if rest & 1:
                out *= base
            rest >>= 1
            if rest:
                base *= base
        if power < 0:
            np.reciprocal(out, out=out)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._raise(bottom[0].cpu_data(), self.power, out=top[0].overwrite_cpu_data())

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not propagate_down[0]:
            return
        dy, dx = top[0].cpu_diff(), bottom[0].overwrite_cpu_diff()
        if self.in_place_chain and self.power == 1 and top[0] is bottom[0]:
            dx.fill(self.scale**2)
            return
        if self.constant_gradient:
            np.multiply(dy, self.power * self.scale, out=dx)
            return
        self._raise(bottom[0].cpu_data(), self.power - 1, out=dx)
        dx *= self.power * self.scale
        dx *= dy
