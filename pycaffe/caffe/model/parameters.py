"""Parameters of a model: one set of values, shared by all its nets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf.message import Message

from ..blob import Blob
from ..errors import CaffeError, FillerError, ShapeError, closest
from ..fillers import fill, filler_types
from ..net_spec import assign_proto
from ..proto import caffe_pb2
from ..random_streams import Stream
from .graph import LayerCall, ModelError

if TYPE_CHECKING:
    from .model import Model
    from .running import ModelNet

# How a filler may be written: its type, a number (constant), its fields, or the message.
FillerLike = str | float | Mapping[str, Any] | caffe_pb2.FillerParameter

# By index. Of types not named here, parameters are called by their index.
_NAMES = {
    **dict.fromkeys(("Convolution", "Deconvolution", "Embed", "InnerProduct"), ("weight", "bias")),
    "Scale": ("scale", "bias"),
    "Bias": ("bias",),
    "PReLU": ("slope",),
    "BatchNorm": ("mean", "variance", "count"),
    "Parameter": ("value",),
}
_FILLERS = {"weight": "weight_filler", "bias": "bias_filler", "scale": "filler", "slope": "filler"}


def filler_message(filler: FillerLike) -> caffe_pb2.FillerParameter:
    """ "xavier", 0.5, {"type": "gaussian", "std": 0.01} -> the message. Raises FillerError for a type that is
    not known, NetSpecError for fields that are not, ModelError for what is no filler."""
    message = caffe_pb2.FillerParameter()
    if isinstance(filler, caffe_pb2.FillerParameter):
        message.CopyFrom(filler)
    elif isinstance(filler, str):
        message.type = filler
    elif isinstance(filler, Mapping):
        for key, value in filler.items():
            assign_proto(message, key, value)
    elif isinstance(filler, (int, float, np.number)):
        message.type, message.value = "constant", float(filler)
    else:
        raise ModelError(f"a filler is a type, a number or a dict of its fields, not {filler!r:.60}")
    if message.type not in filler_types():
        known = filler_types()
        raise FillerError(
            f"Unknown filler name: {message.type}{closest(message.type, known)} (known types: "
            f"{', '.join(known)})"
        )
    return message


def set_filler(call: LayerCall, index: int, filler: caffe_pb2.FillerParameter) -> bool:
    """Write the filler into the layer's definition; False where the layer has no field for it."""
    for _, message in _own_messages(call.definition):
        name = _filler_field(call.type, index, message)
        if name:
            getattr(message, name).CopyFrom(filler)
            return True
    return False


def _own_messages(definition: caffe_pb2.LayerParameter) -> Iterator[tuple[str, Message]]:
    for field, value in definition.ListFields():
        if isinstance(value, Message) and field.name.endswith("_param"):
            yield field.name, value


def _filler_field(layer_type: str, index: int, message: Message) -> str:
    names = _NAMES.get(layer_type, ())
    field = _FILLERS.get(names[index], "") if index < len(names) else ""
    known = message.DESCRIPTOR.fields_by_name
    if field == "bias_filler" and layer_type == "Bias":
        field = "filler"
    return field if field in known else ""


class Parameter:
    """A parameter of a model, used by one layer or shared by several.

    name: "<layer>/weight", or as create_parameter was told. `data` and `diff` are the arrays that all nets
    of the model use: writing into them changes the model. Pass a parameter to another layer (`weight=p`) to
    share it, or where a top is expected, to compute with its values.
    """

    def __init__(
        self,
        model: Model,
        name: str,
        shape: tuple[int, ...] | None = None,
        filler: FillerLike | None = None,
        lr_mult: float | None = None,
        decay_mult: float | None = None,
        place: str = "",
    ):
        self.model, self.name, self.place = model, name, place
        self.uses: list[tuple[LayerCall, int]] = []
        self._shape, self._filler = shape, filler
        self._spec = caffe_pb2.ParamSpec()
        if lr_mult is not None:
            self._spec.lr_mult = lr_mult
        if decay_mult is not None:
            self._spec.decay_mult = decay_mult

    # -- its users --------------------------------------------------------------------------------------

    def used_by(self, call: LayerCall, index: int) -> None:
        """Let parameter `index` of this layer be this one."""
        self.uses.append((call, index))
        if self._shape is not None and len(self.uses) == 1:  # from create_parameter
            if self._filler is not None:
                set_filler(call, index, filler_message(self._filler))
            _spec(call, index).MergeFrom(self._spec)
        if self._shape is not None or len(self.uses) > 1:
            for user, i in self.uses:
                _spec(user, i).name = self.key_name

    @property
    def key_name(self) -> str:
        """The name in `param { name: ... }` that its users share."""
        specs = (_spec_or_none(call, i) for call, i in self.uses)
        return next((s.name for s in specs if s is not None and s.name), self.name)

    @property
    def layers(self) -> tuple[LayerCall, ...]:
        """The layers that use it."""
        return tuple(dict.fromkeys(call for call, _ in self.uses))

    # -- multipliers --------------------------------------------------------------------------------------

    @property
    def lr_mult(self) -> float:
        """Times the solver's rate; 0 freezes the parameter. Setting it holds for nets made from then on; a
        training that is under way refuses to go on before m.minimize is called again."""
        return self._first_spec().lr_mult

    @lr_mult.setter
    def lr_mult(self, value: float) -> None:
        self._set("lr_mult", value)

    @property
    def decay_mult(self) -> float:
        """Times the solver's weight_decay."""
        return self._first_spec().decay_mult

    @decay_mult.setter
    def decay_mult(self, value: float) -> None:
        self._set("decay_mult", value)

    def _first_spec(self) -> caffe_pb2.ParamSpec:
        for call, i in self.uses:
            spec = _spec_or_none(call, i)
            if spec is not None:
                return spec
        return self._spec

    def _set(self, field: str, value: float) -> None:
        if getattr(self._first_spec(), field) != value:
            self.model.multipliers_set += 1
        setattr(self._spec, field, value)
        for call, i in self.uses:
            setattr(_spec(call, i), field, value)
        self.model.changed()

    # -- values -------------------------------------------------------------------------------------------

    @property
    def blob(self) -> Blob:
        """Values and gradient, as all nets of the model share them."""
        return self.model.blob_of(self)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape if self._shape is not None else self.blob.shape

    @property
    def data(self) -> np.ndarray:
        """The values; may be kept, and written at any time."""
        return self.blob.data

    @property
    def diff(self) -> np.ndarray:
        """The gradient that backward passes have added up; after an update, what was subtracted."""
        return self.blob.diff

    @property
    def filler(self) -> caffe_pb2.FillerParameter | None:
        """What draws its first values; None for zeros, or for layers that have rules of their own."""
        for call, i in self.uses:
            for _, message in _own_messages(call.definition):
                field = _filler_field(call.type, i, message)
                if field and message.HasField(field):
                    return getattr(message, field)
        return None if self._filler is None else filler_message(self._filler)

    def drawn(self, seed: tuple[int, ...]) -> np.ndarray:
        """The first values of a parameter that create_parameter made: from seed and name alone."""
        array = np.zeros(self._shape or (), np.float32)
        if self._filler is not None:
            fill(array, filler_message(self._filler), Stream(seed, f"{self.name}/0").generator())
        return array

    def __repr__(self) -> str:
        return f"<caffe.model.Parameter '{self.name}'>"


@dataclass(frozen=True)
class ParameterInfo:
    """What m.param_info says. filler: None where the layer's own rule holds. layers: names of its users.
    gradient: the diff, live; None while no layer uses the parameter."""

    name: str
    shape: tuple[int, ...]
    filler: caffe_pb2.FillerParameter | None
    lr_mult: float
    decay_mult: float
    layers: tuple[str, ...]
    gradient: np.ndarray | None


def _spec(call: LayerCall, index: int) -> caffe_pb2.ParamSpec:
    while len(call.definition.param) <= index:
        call.definition.param.add()
    return call.definition.param[index]


def _spec_or_none(call: LayerCall, index: int) -> caffe_pb2.ParamSpec | None:
    return call.definition.param[index] if index < len(call.definition.param) else None


def parameter_name(call: LayerCall, index: int) -> str:
    names = _NAMES.get(call.type, ())
    return f"{call.name}/{names[index] if index < len(names) else index}"


# Copies of Values, by the same keys.
Arrays = dict[str | tuple[str, int], np.ndarray]


class Values:
    """The blobs that a model's nets share: by the name of a param block, else by layer and index."""

    def __init__(self) -> None:
        self._blobs: dict[str | tuple[str, int], Blob] = {}

    def __bool__(self) -> bool:
        return bool(self._blobs)

    def attach(self, net: ModelNet) -> None:
        """Let the net use these values; what is new in it becomes part of them."""
        for layer in net.layers:
            specs = layer.layer_param.param
            for i, blob in enumerate(layer.blobs):
                name = specs[i].name if i < len(specs) else ""
                key = name or (layer.name, i)
                known = self._blobs.get(key)
                if known is None:
                    self._blobs[key] = blob
                elif known is not blob:
                    _share(blob, known, layer, i)
        net.params_shared()

    def copies(self) -> Arrays:
        return {key: np.array(blob.cpu_data()) for key, blob in self._blobs.items()}

    def equal(self, arrays: Arrays) -> bool:
        """Are these the values, in every bit, as far as both know them?"""
        pairs = ((blob.cpu_data(), arrays[key]) for key, blob in self._blobs.items() if key in arrays)
        return all(a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)

    def overwrite(self, arrays: Arrays) -> None:
        for key in self._blobs.keys() & arrays.keys():
            self._blobs[key].data[...] = arrays[key]

    def find(self, call: LayerCall, index: int) -> Blob | None:
        spec = _spec_or_none(call, index)
        return self._blobs.get((spec.name if spec is not None else "") or (call.name, index))

    def rename(self, call: LayerCall, index: int, name: str) -> None:
        """A parameter that was one layer's is shared by name from now on."""
        blob = self._blobs.pop((call.name, index), None)
        if blob is not None:
            self._blobs.setdefault(name, blob)

    def clear(self) -> None:
        self._blobs.clear()


def _share(blob: Blob, known: Blob, layer: Any, index: int) -> None:
    if blob.count != known.count:
        raise ShapeError(
            f"parameter {index} has shape {blob.shape} here, and {known.shape} in the model's other nets: "
            "give inputs of the shape that the model was made for",
            layer=layer.name,
            layer_type=layer.type,
        )
    blob.share_data(known)
    blob.share_diff(known)


class InitialValues(MutableMapping[Parameter, Any]):
    """`m.init_net`: constants and given values that m.init() uses instead of drawing.

    m.init_net[p] = 0.5, or an array of p's shape, or a filler such as {"type": "gaussian", "std": 0.01}.
    Values are written into the layers' definitions, so that files that are saved begin with them, too.
    """

    def __init__(self, model: Model):
        self._model = model
        self._given: dict[Parameter, Any] = {}

    def __getitem__(self, parameter: Parameter) -> Any:
        return self._given[parameter]

    def __setitem__(self, parameter: Parameter, value: Any) -> None:
        if not isinstance(parameter, Parameter) or parameter.model is not self._model:
            raise ModelError(f"init_net takes parameters of its model, not {parameter!r}")
        if isinstance(value, (np.ndarray, Sequence)) and not isinstance(value, str):
            value = np.asarray(value, np.float32)
            if value.shape != parameter.shape:
                raise ModelError(
                    f"init_net: parameter '{parameter.name}' has shape {parameter.shape}, the array "
                    f"{value.shape}"
                )
        else:
            filler_message(value)  # refuses what is no filler
        before = dict(self._given)
        self._given[parameter] = value
        try:
            self._model.init()
        except CaffeError:  # a filler that does not go with the shape
            self._given = before
            self._model.init()
            raise

    def __delitem__(self, parameter: Parameter) -> None:
        del self._given[parameter]
        for call in parameter.layers:
            del call.definition.blobs[:]
        self._model.init()

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def apply(self, seed: tuple[int, ...]) -> None:
        """Write the given values into the shared blobs, and into the definitions of the layers."""
        for parameter, value in self._given.items():
            array = parameter.data
            if isinstance(value, np.ndarray):
                array[...] = value
            else:
                values = np.empty(parameter.shape, np.float32)
                fill(values, filler_message(value), Stream(seed, f"{parameter.name}/init").generator())
                array[...] = values
        for call in dict.fromkeys(call for p in self._given for call in p.layers):
            del call.definition.blobs[:]
            for parameter in call.parameters:
                call.definition.blobs.append(parameter.blob.to_proto())
