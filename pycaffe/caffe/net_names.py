"""The original's names for what a net is made of, for scripts and tools, and its table in notebooks."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from .blob import Blob
from .errors import NetError
from .html_table import html_table
from .net_wiring import Wiring

# What nets of pycaffe had before 1.0 -> what scripts write since then.
_TODAY = {
    **dict.fromkeys(("set_phase_train", "set_phase_test"), "caffe.Net(model, weights, caffe.TEST)"),
    "set_mode_cpu": "caffe.set_mode_cpu()",
    "set_mode_gpu": "caffe.set_mode_gpu()",
    "set_device": "caffe.set_device(id)",
    **{
        name: f"caffe.io.Transformer(inputs).{name}(...)"
        for name in ("set_mean", "set_input_scale", "set_raw_scale", "set_channel_swap")
    },
    **dict.fromkeys(("preprocess", "deprocess"), "caffe.io.Transformer(inputs), or net.transformer"),
}


class RetiredNameError(NetError, AttributeError):
    """A name that nets had before 1.0."""


class NetNames:
    """Part of Net. Indices count the blobs and layers in the order in which they were made.

    A loss's top that nobody named is called "(automatic)", as in the original; `blobs` has the last of that
    name, `_blobs` all.
    """

    _wiring: Wiring
    blobs: OrderedDict[str, Blob]
    inputs: list[str]
    outputs: list[str]
    name: str

    @property
    def _layer_names(self) -> list[str]:
        return self._wiring.layer_names

    @property
    def _blob_names(self) -> list[str]:
        return list(self._wiring.blob_names)

    @property
    def _blobs(self) -> list[Blob]:
        return list(self._wiring.blobs)

    @property
    def _inputs(self) -> list[int]:
        return [self._wiring.blob_index[name] for name in self.inputs]

    @property
    def _outputs(self) -> list[int]:
        return [self._wiring.blob_index[name] for name in self.outputs]

    def _bottom_ids(self, index: int) -> list[int]:
        return self._wiring.bottom_ids[index]

    def _top_ids(self, index: int) -> list[int]:
        return self._wiring.top_ids[index]

    @property
    def top_names(self) -> OrderedDict[str, list[str]]:
        """{layer name: names of its tops}"""
        return self._names(self._wiring.top_ids)

    @property
    def bottom_names(self) -> OrderedDict[str, list[str]]:
        """{layer name: names of its bottoms}"""
        return self._names(self._wiring.bottom_ids)

    def _names(self, ids: list[list[int]]) -> OrderedDict[str, list[str]]:
        names = self._wiring.blob_names
        return OrderedDict(
            (layer, [names[i] for i in ids[k]]) for k, layer in enumerate(self._wiring.layer_names)
        )

    @property
    def _blob_loss_weights(self) -> list[float]:
        return list(self._wiring.blob_loss_weights)

    @property
    def blob_loss_weights(self) -> OrderedDict[str, float]:
        """{blob name: its weight in the objective}"""
        return OrderedDict(zip(self._blob_names, self._blob_loss_weights, strict=True))

    if not TYPE_CHECKING:  # for editors, a net has no other names than those it has

        def __getattr__(self, name: str) -> Any:
            if name in _TODAY:
                raise RetiredNameError(f"net.{name} is of Caffe before 1.0; since then it is {_TODAY[name]}")
            return self.__getattribute__(name)

    def _repr_html_(self) -> str:
        from . import net_summary  # for notebooks only

        return html_table(net_summary.table(self), self.name)  # type: ignore[arg-type]
