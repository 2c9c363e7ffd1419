"""ParameterSet: the part of Model that knows its parameters: created, shared, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..blob import Blob
from ..errors import closest
from ..proto import caffe_pb2
from .graph import LayerCall, ModelError, Top, caller_place
from .parameters import (
    Arrays,
    FillerLike,
    InitialValues,
    Parameter,
    ParameterInfo,
    Values,
    filler_message,
    parameter_name,
)
from .recording import Recording


class ParameterSet(Recording):
    """Layers, and the parameters that they use. seed: of all random numbers."""

    def __init__(self, name: str, seed: int):
        super().__init__(name)
        self.seed = seed
        self.init_net = InitialValues(self)  # type: ignore[arg-type]
        self._values = Values()
        self._created: dict[str, Parameter] = {}
        self._parameters: dict[tuple[LayerCall, int], Parameter] = {}
        self._shapes: dict[Top, tuple[int, ...]] | None = None
        self.multipliers_set = 0  # how often an lr_mult or decay_mult was changed

    @property
    def has_values(self) -> bool:
        """Have the parameters been drawn?"""
        return bool(self._values)

    def copy_values(self) -> Arrays:
        return self._values.copies()

    def replace_values(self, arrays: Arrays) -> bool:
        """Overwrite the parameters; False when these were their values already, in every bit."""
        different = not self._values.equal(arrays)
        self._values.overwrite(arrays)
        return different

    def _discover(self) -> None:
        """Make sure that there are values, and shapes of all tops."""
        raise NotImplementedError

    def _begin_anew(self) -> None:
        """The parameters are drawn anew: so begins the training."""
        raise NotImplementedError

    def changed(self) -> None:
        self._shapes = None

    def _input(self, value: Any, index: int, layer: caffe_pb2.LayerParameter, place: str) -> Top:
        if isinstance(value, Parameter):
            value = self.top_of(value)
        return super()._input(value, index, layer, place)

    def create_parameter(
        self,
        name: str,
        shape: Sequence[int],
        filler: FillerLike | None = None,
        lr_mult: float = 1.0,
        decay_mult: float = 1.0,
    ) -> Parameter:
        """A parameter for layers to share, or to compute with where a top is expected.

        name: in the present scope. filler: "xavier", a number, {"type": "gaussian", "std": 0.01}; by default
        that of the first layer that uses it, and zeros where it stands for a top. lr_mult: times the solver's
        rate, 0 freezes it. decay_mult: times its weight_decay.
        Raises ModelError for a name that is taken and for arguments that are none, FillerError.
        """
        if not isinstance(name, str) or not name:
            raise ModelError(f"create_parameter: the name must be a str, not {name!r}")
        name = "/".join([*self._scopes, name])
        if name in self._created:
            raise ModelError(
                f"the model has a parameter '{name}' already (made at {self._created[name].place})"
            )
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        if not all(isinstance(n, (int, np.integer)) and n > 0 for n in sizes):
            raise ModelError(f"create_parameter: '{name}' needs a shape of numbers of 1 or more, not {shape}")
        if filler is not None:
            filler_message(filler)  # refuses what is no filler
        for what, value in (("lr_mult", lr_mult), ("decay_mult", decay_mult)):
            if not isinstance(value, (int, float, np.number)):
                raise ModelError(f"create_parameter: {what} of '{name}' must be a number, not {value!r}")
        parameter = Parameter(
            self,  # type: ignore[arg-type]
            name,
            tuple(int(n) for n in sizes),
            filler,
            lr_mult,
            decay_mult,
            caller_place(),
        )
        self._created[name] = parameter
        return parameter

    def check_created(self) -> None:
        """Raises ModelError where a layer's parameter has another shape than the one that it was given."""
        for parameter in self._created.values():
            for call, index in parameter.uses:
                blob = self._values.find(call, index)
                if blob is not None and blob.shape != parameter.shape:
                    raise call.error(
                        f"its parameter {index} has shape {blob.shape}, and '{parameter.name}' (made at "
                        f"{parameter.place}) {parameter.shape}"
                    )

    def check_parameter(self, what: str, parameter: Any) -> None:
        """Raises ModelError for what is no parameter of this model."""
        if not isinstance(parameter, Parameter) or parameter.model is not self:
            raise ModelError(f"{what} takes a parameter of this model, not {parameter!r:.60}")

    def share(self, call: LayerCall, index: int, parameter: Parameter) -> None:
        """Let parameter `index` of a layer be this one, which others use, too."""
        for user, i in parameter.uses[:1]:
            self._values.rename(user, i, parameter.key_name)
        parameter.used_by(call, index)
        self._parameters[call, index] = parameter
        self.changed()

    def top_of(self, parameter: Parameter) -> Top:
        """A top with a parameter's values, by a layer of type Parameter."""
        for call in parameter.layers:
            if call.type == "Parameter":
                return call.tops[0]
        shape = {"dim": list(parameter.shape)}
        name = parameter.name if parameter.name not in self._layer_names else f"{parameter.name}_value"
        scopes, self._scopes = self._scopes, []
        try:
            call = self.add_layer("Parameter", (), {"shape": shape}, name=name)
        finally:
            self._scopes = scopes
        if parameter.filler is not None and not parameter.uses:
            call.definition.blobs.append(_blob_of(parameter.drawn((self.seed, 0))).to_proto())
        self.share(call, 0, parameter)
        return call.tops[0]

    @property
    def parameters(self) -> dict[str, Parameter]:
        """All parameters by name, in the order of their layers: "conv1/weight", "conv1/bias", ... Builds a
        net when the layers have changed."""
        self._discover()
        named: dict[str, Parameter] = {}
        for call in self.layers:
            for parameter in self._parameters_of(call):
                named.setdefault(parameter.name, parameter)
        return named

    def param_info(self, parameter: Parameter | str) -> ParameterInfo:
        """Shape, filler, multipliers, users and gradient of a parameter (or of the one of that name)."""
        p = self._find_parameter(parameter)
        users = tuple(call.name for call in p.layers)
        return ParameterInfo(
            p.name, p.shape, p.filler, p.lr_mult, p.decay_mult, users, p.diff if users else None
        )

    def _find_parameter(self, parameter: Parameter | str) -> Parameter:
        if isinstance(parameter, Parameter) and parameter.model is self:
            return parameter
        if not isinstance(parameter, str):
            raise ModelError(f"a parameter of this model, or its name, is wanted, not {parameter!r:.60}")
        known = {**self._created, **self.parameters}
        if parameter not in known:
            raise ModelError(
                f"the model has no parameter '{parameter}'{closest(parameter, known)} ({', '.join(known)})"
            )
        return known[parameter]

    def parameters_of(self, call: LayerCall) -> tuple[Parameter, ...]:
        """A layer's parameters in their order."""
        self._discover()
        return self._parameters_of(call)

    def _parameters_of(self, call: LayerCall) -> tuple[Parameter, ...]:
        found = []
        while self._values.find(call, len(found)) is not None:
            key = (call, len(found))
            if key not in self._parameters:
                parameter = self._same(call, len(found)) or self._new(call, len(found))
                self._parameters[key] = parameter
                parameter.uses.append(key)
            found.append(self._parameters[key])
        return tuple(found)

    def _new(self, call: LayerCall, index: int) -> Parameter:
        return Parameter(self, parameter_name(call, index))  # type: ignore[arg-type]

    def _same(self, call: LayerCall, index: int) -> Parameter | None:
        """The parameter that another layer of the same name, or the same param name, has already."""
        blob = self._values.find(call, index)
        for parameter in self._parameters.values():
            user, i = parameter.uses[0]
            if self._values.find(user, i) is blob:
                return parameter
        return None

    def blob_of(self, parameter: Parameter) -> Blob:
        """The shared blob of a parameter."""
        self._discover()
        for call, index in parameter.uses:
            blob = self._values.find(call, index)
            if blob is not None:
                return blob
        raise ModelError(f"parameter '{parameter.name}' ({parameter.place}) is used by no layer yet")

    def init(self, seed: int | None = None) -> None:
        """Draw all parameters anew (by another seed, if one is given), put in what init_net gives, and begin
        the training anew. Nets and arrays that are held stay valid."""
        if seed is not None:
            self.seed = checked_seed(seed)
        for parameter in self.init_net:
            for call in parameter.layers:
                del call.definition.blobs[:]
        self._begin_anew()
        self._discover()
        fresh, self._values = self._values, Values()
        try:
            self._shapes = None
            self._discover()
        finally:
            drawn, self._values = self._values, fresh
        self._values.overwrite(drawn.copies())
        self.init_net.apply((self.seed, 0))


def checked_seed(seed: Any) -> int:
    """Raises ModelError for what is no seed."""
    if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**62:
        raise ModelError(f"seed must be an integer in [0, 2**62), not {seed!r}")
    return int(seed)


def _blob_of(array: np.ndarray) -> Blob:
    blob = Blob(array.shape)
    blob.overwrite_cpu_data()[...] = array
    return blob
