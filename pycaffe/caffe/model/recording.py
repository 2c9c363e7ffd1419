"""Recording: the layers of a model, their names, and the NetParameters that they stand for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import closest
from ..net_insertion import filter_net
from ..net_spec import NetSpecError, assign_proto, messages_of
from ..proto import caffe_pb2
from ..proto_text import layer_lines, read_text
from ..upgrade_proto import read_net_upgraded, upgrade_net
from . import deploy
from .definition import Definition, check_phases, in_phase, needed_for, render, stand_in
from .graph import LayerCall, ModelError, Top, caller_place

TRAIN, TEST = caffe_pb2.TRAIN, caffe_pb2.TEST
_PHASES: dict[Any, caffe_pb2.Phase] = {"train": TRAIN, "test": TEST, TRAIN: TRAIN, TEST: TEST}
# Names that a net usually has once; others are numbered from the first on.
_SINGLE = ("accuracy", "data", "input", "label", "loss")


def phase_of(phase: str | int) -> caffe_pb2.Phase:
    """ "train" or "test" (or caffe.TRAIN, caffe.TEST) -> the number. Raises ModelError."""
    if phase not in _PHASES:
        raise ModelError(f"phase must be 'train' or 'test', not {phase!r}")
    return _PHASES[phase]


class Recording:
    """The part of Model that is written down: layers in the order in which they were made."""

    def __init__(self, name: str = ""):
        self.name = _text("Model", name)
        self.layers: list[LayerCall] = []
        self._header = caffe_pb2.NetParameter()
        if name:
            self._header.name = name
        self._scopes: list[str] = []
        self._default_phase: caffe_pb2.Phase | None = None
        self._layer_names: dict[str, LayerCall] = {}
        self._top_names: set[str] = set()
        self._places: dict[str, str] = {}

    # -- names --------------------------------------------------------------------------------------------

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Layers made within are called "<name>/..."; scopes nest."""
        if not _text("scope", name):
            raise ModelError("scope needs a name")
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    @contextmanager
    def phase(self, phase: str | int) -> Iterator[None]:
        """Layers made within are for this phase only: "train" or "test"."""
        before, self._default_phase = self._default_phase, phase_of(phase)
        try:
            yield
        finally:
            self._default_phase = before

    def unique_name(self, base: str) -> str:
        """A name that no layer or top has yet: the base in the present scope, with a number."""
        prefix = "/".join([*self._scopes, ""]) if self._scopes else ""
        number = 0 if base in _SINGLE else 1
        while True:
            name = f"{prefix}{base}{number + (base in _SINGLE) if number else ''}"
            if name not in self._layer_names and name not in self._top_names:
                return name
            number += 1

    def full_name(self, name: str) -> str:
        """A name that was given, in the present scope. Raises ModelError when a layer has it."""
        full = "/".join([*self._scopes, _text("a layer", name)])
        owner = self._layer_names.get(full)
        if owner is not None:
            raise ModelError(f"the model has a layer '{full}' already ({owner.type}, made at {owner.place})")
        return full

    # -- layers -------------------------------------------------------------------------------------------

    def add_layer(
        self,
        type: str,
        inputs: Sequence[Any] = (),
        params: Mapping[str, Any] | None = None,
        *,
        ntop: int = 1,
        name: str = "",
        base: str = "",
        top_names: Sequence[str] = (),
        in_place: bool | None = False,
        phase: str | int | None = None,
        same_tops_as: LayerCall | None = None,
    ) -> LayerCall:
        """Append a layer; all layer functions end here.

        params: fields of the type's parameters or of LayerParameter, as NetSpec has them. base: what its name
        begins with, if none is given. in_place: for its first top; None: if nobody minds. same_tops_as: the
        layer makes the tops of that one, in another phase.
        Raises ModelError for inputs that are no tops of this model, and for names that are taken;
        NetSpecError for parameters that the type has not.
        """
        place = caller_place()
        name = (
            same_tops_as.name
            if same_tops_as
            else self.full_name(name)
            if name
            else self.unique_name(base or type.lower())
        )
        definition = caffe_pb2.LayerParameter(name=name, type=type)
        for key, value in (params or {}).items():
            _assign(definition, key, value)
        phase = self._default_phase if phase is None else phase_of(phase)
        if phase is not None and not definition.include and not definition.exclude:
            definition.include.add(phase=phase)
        tops = [self._input(value, i, definition, place) for i, value in enumerate(inputs)]
        places = frozenset((0,)) if in_place else frozenset()
        call = LayerCall(self, definition, tops, place, None if in_place is None else places)  # type: ignore[arg-type]
        if same_tops_as is not None:
            call.tops = same_tops_as.tops
            for top in call.tops:
                top.producers.append(call)
        else:
            call.tops = self._new_tops(call, ntop, top_names)
            self._layer_names[name] = call
        self._append(call)
        return call

    def _append(self, call: LayerCall) -> None:
        self.layers.append(call)
        self._places[call.name] = call.place
        self.changed()

    def _new_tops(self, call: LayerCall, ntop: int, names: Sequence[str]) -> tuple[Top, ...]:
        if not names:
            names = [call.name] if ntop == 1 else [f"{call.name}_{i}" for i in range(ntop)]
        for name in names:
            self._top_names.add(name)
        return tuple(Top(self, call, i, name) for i, name in enumerate(names))  # type: ignore[arg-type]

    def _input(self, value: Any, index: int, layer: caffe_pb2.LayerParameter, place: str) -> Top:
        if isinstance(value, Top):
            if value.model is not self:
                raise ModelError(
                    f"layer '{layer.name}' ({layer.type}, {place}): input {index} belongs to another model "
                    f"('{value.model.name}', made at {value.layer.place})"
                )
            return value
        several = isinstance(value, (tuple, list)) and all(isinstance(x, Top) for x in value)
        cure = "; put * before it" if several else ""
        raise ModelError(
            f"layer '{layer.name}' ({layer.type}, {place}): input {index} must be what a layer function "
            f"gave, not {type(value).__name__}{cure}"
        )

    def own_tops(self, what: str, tops: Any) -> tuple[Top, ...]:
        """A top, or several of them, as a tuple. Raises ModelError for what is no top of this model."""
        several = isinstance(tops, Iterable) and not isinstance(tops, (str, bytes))
        found: tuple[Any, ...] = tuple(tops) if several else (tops,)
        for top in found:
            if not isinstance(top, Top) or top.model is not self:
                other = isinstance(top, Top)
                raise ModelError(
                    f"{what} must be tops of this model, "
                    + (f"and '{top.name}' ({top.layer.place}) is another's" if other else f"not {top!r:.60}")
                )
        return found

    def changed(self) -> None:
        """The definition has changed: nets that were made of it are of the past."""

    @property
    def tops(self) -> dict[str, Top]:
        """All tops by name; of a blob that layers change in place, the last."""
        return {top.name: top for call in self.layers for top in call.tops}

    # -- prototxt -----------------------------------------------------------------------------------------

    def to_proto(
        self,
        phase: str | int | None = None,
        outputs: Sequence[Top] | Top | None = None,
        inputs: Sequence[Top] = (),
    ) -> caffe_pb2.NetParameter:
        """The model as a NetParameter.

        phase: None gives all layers with their include rules (a train_val.prototxt); "train" or "test", the
        layers of that phase; "deploy", the net without data, losses and metrics, from Input layers to scores.
        outputs: only what these tops need. inputs: tops to put Input layers in the place of.
        """
        return self.define(phase, outputs, inputs).param

    def define(
        self,
        phase: str | int | None = None,
        outputs: Sequence[Top] | Top | None = None,
        inputs: Sequence[Top] = (),
    ) -> Definition:
        """to_proto, with the names of the tops' blobs."""
        wanted = None if outputs is None else self.own_tops("outputs", outputs)
        inputs = self.own_tops("inputs", inputs)
        if phase == "deploy":
            return deploy.define(self.layers, self._header, wanted, inputs, self.shape_of)
        number = None if phase is None else phase_of(phase)
        calls = in_phase(self.layers, number)
        everything: Sequence[LayerCall] = self.layers
        asked = wanted or ()
        if wanted is not None or inputs:
            present = set(calls)
            wanted = [stand_in(t, present, inputs) for t in (sinks(calls) if wanted is None else wanted)]
            everything = calls = needed_for(calls, wanted, inputs)
        definition = render(everything, calls, self._header, [*(wanted or ()), *inputs])
        if asked:
            for top, there in zip(asked, wanted or (), strict=True):
                definition.names[top] = definition.names.setdefault(there, there.name)
        if number is None:
            check_phases(definition, calls)
        if inputs:
            deploy.put_inputs(definition, inputs, self.shape_of)
        if number is not None:
            definition.param.state.MergeFrom(caffe_pb2.NetState(phase=number))
            definition.param.CopyFrom(filter_net(definition.param))
            if not self._header.HasField("state"):
                definition.param.ClearField("state")
        return definition

    def read(self, source: str | os.PathLike[str] | caffe_pb2.NetParameter) -> None:
        """Take over the layers of a net, with all their names. For an empty recording."""
        param = caffe_pb2.NetParameter()
        places: dict[str, str] = {}
        if isinstance(source, caffe_pb2.NetParameter):
            param.CopyFrom(source)
            upgrade_net(param, "NetParameter")
        else:
            param.CopyFrom(read_net_upgraded(str(source)))
            file = os.path.basename(source)
            places = {name: f"{file}:{line}" for line, name in layer_lines(read_text(source))}
        here = caller_place()
        self._header.CopyFrom(param)
        self._header.ClearField("layer")
        self.name = param.name
        latest: dict[str, Top] = {}
        for layer in param.layer:
            self._read_layer(layer, latest, places.get(layer.name, here))

    def _read_layer(self, layer: caffe_pb2.LayerParameter, latest: dict[str, Top], place: str) -> None:
        for name in layer.bottom:
            if name not in latest:
                raise ModelError(
                    f"layer '{layer.name}' ({layer.type}, {place}): Unknown bottom blob '{name}'"
                    f"{closest(name, latest)}"
                )
        inputs = [latest[name] for name in layer.bottom]
        definition = caffe_pb2.LayerParameter()
        definition.CopyFrom(layer)
        del definition.bottom[:]
        del definition.top[:]
        in_place = frozenset(
            i for i, name in enumerate(layer.top) if i < len(inputs) and layer.bottom[i] == name
        )
        call = LayerCall(self, definition, inputs, place, in_place)  # type: ignore[arg-type]
        call.fixed_names = True
        tops = []
        for i, name in enumerate(layer.top):
            if name in latest and i not in in_place:  # another phase's maker of the same blob
                top = latest[name]
                top.producers.append(call)
            else:
                top = latest[name] = Top(self, call, i, name)  # type: ignore[arg-type]
            tops.append(top)
        call.tops = tuple(tops)
        self._top_names.update(layer.top)
        self._layer_names.setdefault(layer.name, call)
        self._append(call)

    def shape_of(self, top: Top) -> tuple[int, ...]:
        """The shape of a top in the model's nets."""
        raise NotImplementedError


def sinks(calls: Sequence[LayerCall]) -> list[Top]:
    """The tops that no layer takes."""
    taken = {top for call in calls for top in call.inputs}
    return list(dict.fromkeys(top for call in calls for top in call.tops if top not in taken))


def _text(what: str, name: Any) -> str:
    if not isinstance(name, str):
        raise ModelError(f"{what}: the name must be a str, not {name!r:.60}")
    return name


def _assign(layer: caffe_pb2.LayerParameter, key: str, value: Any) -> None:
    """Set a field of the type's own parameters or, when they have none of the name, of every layer's."""
    general: Mapping[str, Any] = layer.DESCRIPTOR.fields_by_name
    own = messages_of(layer.type)
    if not key.endswith("param"):
        for message in own:
            if key in general[message].message_type.fields_by_name:
                assign_proto(getattr(layer, message), key, value)
                return
    if key not in general or key in ("bottom", "top", "type", "name"):
        fields = [f.name for m in own for f in general[m].message_type.fields]
        raise NetSpecError(
            f"layer '{layer.name}': {layer.type} has no parameter '{key}'"
            f"{closest(key, [*fields, *general])} (its own: {', '.join(fields) or 'none'})"
        )
    assign_proto(layer, key, value)
