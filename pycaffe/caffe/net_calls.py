"""How scripts run a net: arrays in by name, arrays out by name, and functions called on the way."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np

from . import net_batch
from .blob import Blob
from .errors import CopyError, NetError, closest
from .layer import Layer
from .net_names import NetNames
from .net_step import Step

Callback = Callable[[int], Any]

HOOKS = ("before_forward", "after_forward", "before_backward", "after_backward")


class NetCalls(NetNames):
    """Part of Net."""

    layers: list[Layer]
    layer_dict: OrderedDict[str, Layer]
    _steps: list[Step]
    _hooks: dict[str, list[Callback]]
    run_forward: Callable[..., float]
    run_backward: Callable[..., None]

    def forward(
        self,
        blobs: Iterable[str] | None = None,
        start: str | None = None,
        end: str | None = None,
        **kwargs: Any,
    ) -> dict[str, np.ndarray]:
        """Run the net, or the layers from `start` to `end` by name.

        kwargs: arrays for the net's inputs by name, all or none of them. blobs: further blobs to
        return. Returns {blob name: data} of the net's outputs (with `end`: of that layer's tops).
        """
        first = self._layer_index(start) if start is not None else 0
        last = self._layer_index(end) if end is not None else len(self._steps) - 1
        if first > last:
            raise NetError(f"forward: layer '{start}' comes after layer '{end}'")
        wanted = self._outputs if end is None else self._top_ids(last)
        returned = self._chosen(wanted, blobs, "blobs")
        if kwargs:
            net_batch.feed(self, "data", kwargs, self.inputs)
        self.run_forward(first, last)
        return {name: blob.data for name, blob in returned.items()}

    def backward(
        self,
        diffs: Iterable[str] | None = None,
        start: str | None = None,
        end: str | None = None,
        **kwargs: Any,
    ) -> dict[str, np.ndarray]:
        """Run the gradients back through the net, or from layer `start` down to `end`.

        kwargs: gradients of the net's outputs by name, all or none of them. diffs: further blobs whose
        gradient is returned. Returns {blob name: diff} of the inputs (with `end`: of that layer's bottoms).
        An input has a gradient only with `force_backward: true` in the net's definition.
        """
        first = self._layer_index(start) if start is not None else len(self._steps) - 1
        last = self._layer_index(end) if end is not None else 0
        if first < last:
            raise NetError(f"backward: layer '{start}' comes before layer '{end}'")
        wanted = self._inputs if end is None else self._bottom_ids(last)
        returned = self._chosen(wanted, diffs, "diffs")
        if kwargs:
            net_batch.feed(self, "diff", kwargs, self.outputs)
        self.run_backward(first, last)
        return {name: blob.diff for name, blob in returned.items()}

    def forward_all(self, blobs: Iterable[str] | None = None, **kwargs: Any) -> dict[str, np.ndarray]:
        """As forward, for arrays with any number of items: run in batches, the last filled up with zeros.

        Returns {blob name: array over all items} of the outputs and `blobs`; a blob whose first axis is
        not the batch's (a loss) has an entry for each batch. Raises NetError.
        """
        return net_batch.forward_all(self, blobs, kwargs)

    def forward_backward_all(
        self, blobs: Iterable[str] | None = None, diffs: Iterable[str] | None = None, **kwargs: Any
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """forward and backward over any number of items. kwargs: arrays for inputs, gradients for outputs.

        Returns ({blob name: data}, {blob name: diff}) as forward_all does: of the outputs and `blobs`, and of
        the inputs and `diffs`. The parameters' gradients add up over the batches.
        """
        return net_batch.forward_backward_all(self, blobs, diffs, kwargs)

    def set_input_arrays(self, data: np.ndarray, labels: np.ndarray) -> None:
        """Let the first layer, a MemoryData layer, read from these arrays: (n, C, H, W) and (n,), n a
        multiple of its batch size. They are kept, not copied: later changes are seen.
        Raises NetError, DataError."""
        net_batch.set_input_arrays(self, data, labels)

    _set_input_arrays = set_input_arrays  # the compiled module's name

    def _chosen(self, ids: Iterable[int], names: Iterable[str] | None, argument: str) -> dict[str, Blob]:
        """The blobs of these indices, and those of the names that a caller gave as `argument`."""
        if isinstance(names, str):
            raise NetError(
                f"{argument} must be names, such as {argument}=[{names!r}], not the text {names!r}"
            )
        chosen = {self._wiring.blob_names[i]: self._wiring.blobs[i] for i in ids}
        for name in names or ():
            if name not in self.blobs:
                raise NetError(
                    f"Unknown blob '{name}'{closest(str(name), self.blobs)} (blobs: {', '.join(self.blobs)})"
                )
            chosen.setdefault(name, self.blobs[name])
        return chosen

    def _layer_index(self, name: str) -> int:
        try:
            return self._wiring.layer_names.index(name)
        except ValueError:
            raise NetError(
                f"Unknown layer '{name}'{closest(str(name), self.layer_dict)} "
                f"(layers: {', '.join(self.layer_dict)})"
            ) from None

    def __reduce__(self) -> NoReturn:
        raise CopyError(
            "a Net cannot be copied or pickled. Its definition and parameters can: net.to_proto() gives a "
            "NetParameter, net.save(file) writes one, and caffe.Net(definition, caffe.TEST) with copy_from "
            "makes a net of it. Processes build their nets themselves"
        )

    # -- callbacks --------------------------------------------------------------------------------------

    def before_forward(self, function: Callback) -> None:
        """function(layer_index) is called before each layer's forward."""
        self._hooks["before_forward"].append(function)

    def after_forward(self, function: Callback) -> None:
        self._hooks["after_forward"].append(function)

    def before_backward(self, function: Callback) -> None:
        self._hooks["before_backward"].append(function)

    def after_backward(self, function: Callback) -> None:
        self._hooks["after_backward"].append(function)
