"""ParameterSet: the part of Model that knows its parameters: created, shared, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..blob import Blob
from ..errors import closest
from ..proto import caffe_pb2
from .graph import LayerCall, ModelError, Top, caller_place
from .parameters import FillerLike, InitialValues, Parameter, ParameterInfo, Values, parameter_name
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

        name: in the present scope. filler: "xavier", a number, {"type": "gaussian", "std": 0.01}; zeros by
        default. lr_mult: times the solver's rate, 0 freezes it. decay_mult: times its weight_decay.
        Raises ModelError for a name that is taken.
        """
        name = "/".join([*self._scopes, name])
        if name in self._created:
            raise ModelError(
                f"the model has a parameter '{name}' already (made at {self._created[name].place})"
            )
        parameter = Parameter(
            self,  # type: ignore[arg-type]
            name,
            tuple(int(n) for n in shape),
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

    def share(self, call: LayerCall, index: int, parameter: Parameter) -> None:
        """Let parameter `index` of a layer be this one, which others use, too."""
        if not isinstance(parameter, Parameter) or parameter.model is not self:
            raise call.error(f"a parameter of this model is wanted, not {parameter!r}")
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
        return ParameterInfo(p.name, p.shape, p.filler, p.lr_mult, p.decay_mult, users, p.diff)

    def _find_parameter(self, parameter: Parameter | str) -> Parameter:
        if isinstance(parameter, Parameter):
            return parameter
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
            self.seed = int(seed)
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
        self._values.copy_from(drawn)
        self.init_net.apply((self.seed, 0))


def _blob_of(array: np.ndarray) -> Blob:
    blob = Blob(array.shape)
    blob.overwrite_cpu_data()[...] = array
    return blob
