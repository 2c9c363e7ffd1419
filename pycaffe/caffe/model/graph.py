"""What a model is made of: layers that were called, and the tops that they gave."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CaffeError
from ..net_source import NetSource
from ..proto import caffe_pb2

if TYPE_CHECKING:
    from .model import Model
    from .parameters import Parameter

_PACKAGE = str(Path(__file__).parents[1])  # frames of this package are not the user's


class ModelError(CaffeError):
    """A model that cannot be built or run as it was asked to: names the layer and its line in Python."""


class Top:
    """Output `index` of a layer of a model: what layer functions give and take. It has no values; those are
    in nets (`net.blob(top)`) and in what `m.run(top)` returns.

    name: the blob's name in the nets, unless a layer works in place on it. layer: the call that made it.
    """

    __slots__ = ("model", "layer", "index", "name", "producers", "__weakref__")

    def __init__(self, model: Model, layer: LayerCall, index: int, name: str):
        self.model, self.layer, self.index, self.name = model, layer, index, name
        self.producers = [layer]  # several when phases have data layers of their own

    @property
    def shape(self) -> tuple[int, ...]:
        """As the training net has it (else the test net). Builds that net when it is first asked."""
        return self.model.shape_of(self)

    def __repr__(self) -> str:
        return f"<caffe.model.Top '{self.name}' of {self.layer.type} ({self.layer.place})>"


class LayerCall:
    """One layer of a model.

    definition: the LayerParameter, but for the names of bottoms and tops. inputs, tops: what it takes and
    gives. place: the line of Python, or of the prototxt, where it was made. in_place: which tops are computed
    in their input's memory; None lets the model decide (see definition.py).
    """

    def __init__(
        self,
        model: Model,
        definition: caffe_pb2.LayerParameter,
        inputs: Sequence[Top],
        place: str,
        in_place: frozenset[int] | None = frozenset(),
    ):
        self.model, self.definition, self.inputs = model, definition, tuple(inputs)
        self.place, self.in_place = place, in_place
        self.tops: tuple[Top, ...] = ()
        self.fixed_names = False  # tops keep their names, come what may: the layer was read from a prototxt

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def type(self) -> str:
        return self.definition.type

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its parameters in their order: weight, bias, ... Builds a net when it is first asked."""
        return self.model.parameters_of(self)

    def error(self, message: str) -> ModelError:
        return ModelError(f"layer '{self.name}' ({self.type}, {self.place}): {message}")

    def __repr__(self) -> str:
        return f"<caffe.model.LayerCall '{self.name}' ({self.type}, {self.place})>"


class ModelSource(NetSource):
    """Where a model's layers were made, for the errors of its nets: "train.py:12"."""

    def __init__(self, places: dict[str, str], name: str):
        super().__init__()
        self._places, self._name = places, name

    def locate(self, layer_name: str) -> str:
        return self._places.get(layer_name, "")


def caller_place() -> str:
    """File and line of the innermost frame that is not this package's: "train.py:12".

    A function of the package that makes layers which were written down elsewhere (a Block, in a list of
    layers) says where in a local variable `made_at`.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        if "made_at" in frame.f_code.co_varnames and frame.f_locals.get("made_at"):
            return frame.f_locals["made_at"]
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
