"""Arrays into a net and out of it: one batch, or any number of items batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import NetError, closest

if TYPE_CHECKING:
    from .net_calls import NetCalls

Arrays = dict[str, np.ndarray]

# What may stand beside the arrays' names in a call.
_KEYWORDS = {"data": ("blobs", "start", "end"), "diff": ("diffs", "start", "end")}


def feed(net: NetCalls, which: str, arrays: Mapping[str, Any], names: list[str]) -> None:
    """Write arrays into `which` ("data" or "diff") of the blobs of these names, all of them.

    Raises NetError for other names, another batch size, and shapes that do not fit.
    """
    _check_all(which, arrays, names)
    for name, value in arrays.items():
        blob, array = net.blobs[name], np.asarray(value)
        if array.shape[:1] != blob.shape[:1]:
            kind = "Input is not batch sized" if which == "data" else "Diff is not batch sized"
            reshaping = f"; use net.blobs['{name}'].reshape(...) and net.reshape(), or forward_all"
            raise NetError(
                f"{kind}: '{name}' has shape {blob.shape}, the array {array.shape}"
                + (reshaping if which == "data" else "")
            )
        target = blob.data if which == "data" else blob.diff
        try:
            target[...] = array
        except (TypeError, ValueError) as error:
            raise NetError(
                f"'{name}' has shape {blob.shape} and holds {blob.dtype}; an array of shape {array.shape} "
                f"does not fit, or its values do not ({array.dtype})"
            ) from error


def _check_all(which: str, arrays: Mapping[str, Any], names: list[str]) -> None:
    if set(arrays) != set(names):
        mismatch = (
            "Input blob arguments do not match net inputs."
            if which == "data"
            else "Top diff arguments do not match net outputs."
        )
        unknown = next(iter(sorted(set(arrays) - set(names))), "")
        raise NetError(
            f"{mismatch} Given: {', '.join(sorted(arrays)) or 'none'}; "
            f"the net has: {', '.join(names) or 'none'}{closest(unknown, [*names, *_KEYWORDS[which]])}"
        )


class _Collector:
    """Puts what batches return together: the first axis runs over items where it is the batch's, else
    over batches. size: the number of items in a batch. count: of items in all."""

    def __init__(self, size: int, count: int):
        self._size, self._count = size, count
        self._arrays: Arrays = {}

    def add(self, batch: int, values: Mapping[str, np.ndarray]) -> None:
        for name, value in values.items():
            by_item = value.shape[:1] == (self._size,)
            if name not in self._arrays:
                rows = self._count if by_item else -(-self._count // self._size)
                shape = value.shape[1:] if by_item else value.shape
                self._arrays[name] = np.empty((rows, *shape), value.dtype)
            target = self._arrays[name]
            if by_item:
                start = batch * self._size
                target[start : start + self._size] = value[: self._count - start]
            else:
                target[batch] = value

    def result(self) -> Arrays:
        return self._arrays


def _batches(arrays: Arrays, size: int, count: int) -> Iterator[Arrays]:
    """The arrays cut into batches; the last is filled up with zeros."""
    for start in range(0, count, size):
        parts = {name: array[start : start + size] for name, array in arrays.items()}
        missing = start + size - count
        if missing > 0:
            parts = {
                name: np.concatenate([part, np.zeros((missing, *part.shape[1:]), part.dtype)])
                for name, part in parts.items()
            }
        yield parts


def _items(net: NetCalls, given: Mapping[str, Any], caller: str) -> tuple[Arrays, int, int]:
    """The arrays, the net's batch size, and how many items they hold."""
    arrays = {name: np.asarray(value) for name, value in given.items()}
    counts = {array.shape[:1] for array in arrays.values()}
    if len(counts) != 1 or counts & {(), (0,)}:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "none"
        raise NetError(f"{caller} takes arrays with the same number of items, 1 or more; given: {shapes}")
    size = next(iter(net.blobs.values())).shape[:1]
    if not size or not size[0]:
        raise NetError(f"{caller} needs a net whose first blob has a batch axis, not shape {size}")
    return arrays, size[0], counts.pop()[0]


def forward_all(net: NetCalls, blobs: Iterable[str] | None, inputs: Mapping[str, Any]) -> Arrays:
    """See Net.forward_all."""
    _check_all("data", inputs, net.inputs)
    arrays, size, count = _items(net, inputs, "forward_all")
    outputs, wanted = _Collector(size, count), list(blobs or ())
    for i, batch in enumerate(_batches(arrays, size, count)):
        feed(net, "data", batch, net.inputs)
        outputs.add(i, net.forward(wanted))
    return outputs.result()


def forward_backward_all(
    net: NetCalls, blobs: Iterable[str] | None, diffs: Iterable[str] | None, given: Mapping[str, Any]
) -> tuple[Arrays, Arrays]:
    """See Net.forward_backward_all."""
    known = {*net.inputs, *net.outputs}
    if not set(given) <= known:
        raise NetError(
            f"forward_backward_all: {', '.join(sorted(set(given) - known))} is no input or output of the net "
            f"(inputs: {', '.join(net.inputs)}; outputs: {', '.join(net.outputs)})"
        )
    arrays, size, count = _items(net, given, "forward_backward_all")
    wanted, wanted_diffs = list(blobs or ()), list(diffs or ())
    outputs, gradients = _Collector(size, count), _Collector(size, count)
    for i, batch in enumerate(_batches(arrays, size, count)):
        inputs = {name: batch[name] for name in net.inputs if name in batch}
        tops = {name: batch[name] for name in net.outputs if name in batch}
        if inputs:
            feed(net, "data", inputs, net.inputs)
        outputs.add(i, net.forward(wanted))
        if tops:
            feed(net, "diff", tops, net.outputs)
        gradients.add(i, net.backward(wanted_diffs))
    return outputs.result(), gradients.result()


def set_input_arrays(net: NetCalls, data: np.ndarray, labels: np.ndarray) -> None:
    """See Net.set_input_arrays."""
    layer = net.layers[0] if net.layers else None
    if layer is None or layer.type != "MemoryData":
        found = f"it is '{layer.name}' ({layer.type})" if layer else "the net has none"
        raise NetError(
            f"set_input_arrays may only be called if the first layer is a MemoryDataLayer; {found}. "
            "Inputs of a deploy net are written with net.blobs['data'].data[...] = x"
        )
    layer.set_arrays(data, labels)  # type: ignore[attr-defined]
