"""Matrix products of recurrent layers, on arrays and blobs in C order.

Weights stay in C order, in which products over all steps are as fast as in any. For those of a few rows at
each step a copy of the weights is laid out as oneDNN likes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from ...blob import Blob
from ...execution import ExecutionContext
from ...synced_mem import SyncedMem
from .base import Argument, Call, Gradient, first_fast, no_post, reorder_desc
from .inner_product import forward_desc
from .layouts import AnyDesc, plain, strided
from .place import Operand
from .primitives import (
    BIAS,
    BINARY_ADD,
    BINARY_MUL,
    DIFF_BIAS,
    DIFF_DST,
    DIFF_SRC,
    DIFF_WEIGHTS,
    DST,
    SRC,
    TANH,
    WEIGHTS,
    WEIGHTS_MD,
    Attributes,
    Buffer,
    Memory,
    PrimitiveDesc,
    post_operand,
)

_TANH = ("eltwise", TANH, 0.0, 0.0)


def _post(kind: str, rows: int, outputs: int) -> list[tuple]:
    """What a product's results go through: "" nothing; "tanh"; "step" and "gates", for RNN and LSTM, add
    what the gates get from elsewhere and take tanh; for "gates" of a · x, of which a · y + b is taken."""
    if kind == "tanh":
        return [_TANH]
    if not kind:
        return []
    post: list[tuple] = [("binary", BINARY_ADD, plain((rows, outputs)))]
    vector = plain((1, outputs))
    if kind == "gates":
        post += [("binary", BINARY_MUL, vector), _TANH, ("binary", BINARY_MUL, vector)]
        return [*post, ("binary", BINARY_ADD, vector)]
    return [*post, _TANH]


@functools.lru_cache(maxsize=1024)
def find_product(
    rows: int, shape: tuple[int, int], bias: bool, kind: str, packed: bool
) -> PrimitiveDesc | None:
    """rows times weights of that shape, (outputs, inputs), or None where oneDNN has no fast code. packed: the
    weights lie as it likes. kind: as in _post."""
    outputs, inputs = shape
    post = _post(kind, rows, outputs)
    attributes = Attributes(post) if post else None
    weights = AnyDesc(shape) if packed else plain(shape)
    return first_fast([lambda: forward_desc(plain((rows, inputs)), weights, outputs, bias, attributes)])


def memory_of(array: np.ndarray) -> Memory:
    """A memory over an array of rows, (…, n) as (any, n), which it keeps alive."""
    memory = Memory(plain((math.prod(array.shape[:-1]), array.shape[-1])))
    memory.point(array.ctypes.data)
    memory.keep = array
    return memory


class Product:
    """y = x · Wᵀ + b on so many rows, and its gradients."""

    def __init__(self, run: ExecutionContext, rows: int, weight: Blob, bias: Blob | None, kind: str = ""):
        self._run, self._weight, self._bias = run, weight, bias
        outputs, inputs = weight.shape
        self._x, self._y = plain((rows, inputs)), plain((rows, outputs))
        self._layout = plain(weight.shape)
        found = find_product(rows, (outputs, inputs), bias is not None, kind, False)
        assert found is not None  # supports asked
        self._found = found
        self._hint = forward_desc(self._x, self._layout, outputs, bias is not None)

    def forward(self, x: Argument, y: Argument) -> Call:
        arguments: dict[int, Argument] = {
            SRC: x,
            WEIGHTS: Operand(self._weight, "data", self._layout, "read"),
            DST: y,
        }
        if self._bias is not None:
            arguments[BIAS] = Operand(self._bias, "data", plain(self._bias.shape), "read")
        return Call(self._run, self._found, arguments)

    def backward_data(self, dy: Argument, dx: Argument) -> Call:
        desc = PrimitiveDesc(
            "inner_product_backward_data", self._x, self._layout, self._y, self._hint, no_post()
        )
        weights = Operand(self._weight, "data", self._layout, "read")
        return Call(self._run, desc, {DIFF_DST: dy, WEIGHTS: weights, DIFF_SRC: dx})

    def backward_weights(self, x: Argument, dy: Argument, wanted: Sequence[bool]) -> Learned:
        bias = None if self._bias is None else plain(self._bias.shape)
        desc = PrimitiveDesc(
            "inner_product_backward_weights", self._x, self._layout, bias, self._y, self._hint, no_post()
        )
        gradients = [Gradient(self._run, self._weight, self._layout, wanted[0])]
        arguments: dict[int, Argument] = {SRC: x, DIFF_DST: dy, DIFF_WEIGHTS: gradients[0].memory}
        if self._bias is not None and bias is not None:
            gradients.append(Gradient(self._run, self._bias, bias, wanted[1]))
            arguments[DIFF_BIAS] = gradients[1].memory
        return Learned(Call(self._run, desc, arguments), gradients if any(wanted) else [])


class StepProduct:
    """y = f(x · Wᵀ), or x · W, on the rows of a step, which are pointed at before each call.

    operands: (number of a post-operation, what it takes)."""

    def __init__(
        self,
        run: ExecutionContext,
        weight: Blob,
        x: Memory,
        y: Memory,
        kind: str = "",
        operands: Sequence[tuple[int, Memory]] = (),
        transposed: bool = False,
    ):
        shape = weight.shape
        source = plain(shape)
        if transposed:
            shape = shape[::-1]
            source = strided(shape, (1, shape[0]))
        found = find_product(x.desc.shape[0], shape, False, kind, True)
        assert found is not None  # supports asked
        layout = found.desc(WEIGHTS_MD)
        packed = Memory(layout, Buffer(layout.nbytes))
        self._weight = Operand(weight, "data", source, "read", on_host=True)
        self._pack = Call(run, reorder_desc(source, layout), {SRC: self._weight, DST: packed})
        self._known: tuple[SyncedMem, int] | None = None
        more = {post_operand(k): memory for k, memory in operands}
        self.call = Call(run, found, {SRC: x, WEIGHTS: packed, DST: y, **more})

    def refresh(self) -> None:
        """Lay the weights out anew if they may have changed."""
        mem = self._weight.mem
        known = self._known
        if known is None or known[0] is not mem or known[1] != mem.version:
            self._pack()
            self._known = mem, mem.version


class Learned:
    """Adds to the gradients of a weight and a bias; to none where none is wanted."""

    def __init__(self, call: Call, gradients: Sequence[Gradient]):
        self._call, self._gradients = call, gradients

    def __call__(self) -> None:
        for gradient in self._gradients:
            gradient.before()
        if self._gradients:
            self._call()
        for gradient in self._gradients:
            gradient.after()
