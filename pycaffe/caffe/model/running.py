"""Nets of a model: called with arrays, run backward from their outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..blob import Blob
from ..errors import closest
from ..execution import ExecutionContext
from ..net import Net
from .definition import Definition
from .graph import ModelError, ModelSource, Top

if TYPE_CHECKING:
    from .model import Model


class Output:
    """One output of a call of a net: an array that knows its gradient.

    data, diff: arrays over the net's blob, true until the net runs again. float(out), np.asarray(out) and
    out.item() give numbers. `backward` runs the net backward from here.
    """

    __slots__ = ("net", "name", "blob")

    def __init__(self, net: ModelNet, name: str):
        self.net, self.name, self.blob = net, name, net.blobs[name]

    @property
    def data(self) -> np.ndarray:
        return self.blob.data

    @property
    def diff(self) -> np.ndarray:
        return self.blob.diff

    @property
    def shape(self) -> tuple[int, ...]:
        return self.blob.shape

    def item(self) -> float:
        return float(self.blob.cpu_data().item())

    def backward(self, diff: Any = None) -> None:
        """Add this output's gradient to the diffs of all parameters.

        Without diff: of the net's objective, all its losses times their weights; the output must be one of
        them. With diff, a number or an array of the output's shape: of Σ diff · output, which needs a net
        made with force_backward=True. Raises ModelError.
        """
        net = self.net
        if diff is None:
            if not net.blob_loss_weights[self.name]:
                raise ModelError(f"'{self.name}' is no loss: give backward(diff) the gradient to begin with")
        else:
            if not net.param.force_backward:
                raise ModelError("backward(diff) needs a net made with m.net(..., force_backward=True)")
            diff = np.asarray(diff, np.float32)
            if diff.ndim and diff.shape != self.shape:
                raise ModelError(f"'{self.name}' has shape {self.shape}, the gradient {diff.shape}")
            for name in net.outputs:
                net.blobs[name].diff[...] = 0
            self.blob.diff[...] = diff
        net.run_backward()

    def __float__(self) -> float:
        return self.item()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.blob.cpu_data(), dtype, copy=True)

    def __repr__(self) -> str:
        return f"<caffe.model.Output '{self.name}' {self.shape}>"


class ModelNet(Net):
    """A net of a model, as m.net() makes it: a caffe.Net whose parameters are the model's.

    net(x, y), net(data=x), net({top: x}): run it, with arrays for its inputs (of any batch size); what comes
    back is one Output, or a tuple of them. wanted: the names of those blobs.
    """

    def __init__(
        self,
        model: Model,
        definition: Definition,
        phase: int,
        run: ExecutionContext,
        outputs: Sequence[Top] | None = None,
        source: ModelSource | None = None,
    ):
        self.model, self._top_blobs, self._overwritten = model, definition.names, definition.overwritten
        super().__init__(definition.param, phase=phase, run=run, source=source or "")
        self.wanted = self.outputs if outputs is None else [definition.names[top] for top in outputs]
        self._results = [Output(self, name) for name in self.wanted]

    def params_shared(self) -> None:
        """Parameters have become aliases of others."""
        self._after_wiring()

    def blob(self, top: Top) -> Blob:
        """The blob of a top: data and diff of the last run. Raises ModelError when it is not in this net, or
        when a layer in place has overwritten it."""
        name = self._top_blobs.get(top)
        if name is None or name not in self.blobs:
            raise ModelError(f"'{top.name}' ({top.layer.place}) is not in this net")
        if top in self._overwritten:
            call = self._overwritten[top]
            raise ModelError(
                f"'{top.name}' is overwritten in this net, by layer '{call.name}' ({call.place}) in place: "
                "make that with in_place=False, or ask for it with m.net(..., outputs=[...]) or m.run(...)"
            )
        return self.blobs[name]

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Feed the inputs, run forward, return the outputs: one Output, or a tuple in the order of `wanted`.

        Raises ModelError for arrays that are not the net's inputs, LayerError for shapes that do not fit.
        """
        if arrays or named:
            self.feed(self._inputs_of(arrays, named))
        self.run_forward()
        return self._results[0] if len(self._results) == 1 else tuple(self._results)

    def _inputs_of(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        if len(arrays) == 1 and isinstance(arrays[0], Mapping):
            named = {**arrays[0], **named}
            arrays = ()
        if len(arrays) > len(self.inputs):
            cure = "" if self.inputs else ": make it with m.net(..., inputs=[...]) to feed it yourself"
            raise ModelError(
                f"the net has {len(self.inputs)} inputs ({', '.join(self.inputs) or 'none'}), and "
                f"{len(arrays)} arrays were given{cure}"
            )
        given = dict(zip(self.inputs, arrays, strict=False))
        for key, value in named.items():
            name = self._top_blobs.get(key, key.name) if isinstance(key, Top) else key
            if name not in self.inputs:
                raise ModelError(
                    f"the net has no input '{name}'{closest(name, self.inputs)} "
                    f"(inputs: {', '.join(self.inputs) or 'none'})"
                )
            given[name] = value
        return given

    def feed(self, arrays: Mapping[str, Any]) -> None:
        """Write arrays into inputs by name; the inputs take their shapes."""
        for name, value in arrays.items():
            try:
                blob, array = self.blobs[name], np.asarray(value)
            except ValueError as error:
                raise ModelError(f"input '{name}' takes an array of numbers: {error}") from error
            if array.dtype.kind not in "fiub":
                raise ModelError(f"input '{name}' takes an array of numbers, not {array.dtype}")
            if blob.shape != array.shape:
                blob.reshape(array.shape)
            np.copyto(blob.overwrite_cpu_data(), array, casting="unsafe")

    def zero_grad(self) -> None:
        """Set the gradients of all parameters to zero; backward adds to them."""
        self.clear_param_diffs()
