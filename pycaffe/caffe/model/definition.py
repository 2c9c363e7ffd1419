"""From a model's layers to NetParameters: phases, pruning, and who works in place.

Layers made in Python are functions: their inputs stay what they are. Where nobody else reads an input, and
neither its maker nor the layer needs the old values for a gradient, the layer works in place all the same, as
prototxts do by hand: it saves memory, and engines fuse a convolution with the ReLU in place behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..net_insertion import filter_net
from ..proto import caffe_pb2
from .graph import LayerCall, ModelError, Top

# Layers that may take the place of their input ...
_IN_PLACE = ("BatchNorm", "Dropout", "ReLU", "Scale")
# ... and those whose gradient does not look at their top, or only at what Dropout and ReLU leave intact.
_OVERWRITABLE = ("BatchNorm", "Bias", "Convolution", "Deconvolution", "InnerProduct", "ReLU", "Scale")

DATA_TYPES = ("Data", "DummyData", "HDF5Data", "ImageData", "Input", "MemoryData", "WindowData")
METRICS = ("Accuracy",)


@dataclass
class Definition:
    """A NetParameter. names: the blob of each top. overwritten: tops whose blob a later layer changed."""

    param: caffe_pb2.NetParameter
    names: dict[Top, str] = field(default_factory=dict)
    overwritten: dict[Top, LayerCall] = field(default_factory=dict)


def is_data(call: LayerCall) -> bool:
    """Does the layer bring numbers from outside?"""
    feeds = call.type == "Python" and call.definition.python_param.module == "caffe.model.feed"
    return call.type in DATA_TYPES or feeds


def is_loss(call: LayerCall) -> bool:
    return any(call.definition.loss_weight) or (
        not call.definition.loss_weight and call.type.endswith("Loss")
    )


def in_phase(calls: Sequence[LayerCall], phase: caffe_pb2.Phase | None) -> list[LayerCall]:
    """The layers whose include and exclude rules a phase fits; all of them for None."""
    if phase is None:
        return list(calls)
    net = caffe_pb2.NetParameter()
    net.state.CopyFrom(caffe_pb2.NetState(phase=phase))
    for i, call in enumerate(calls):
        rules = net.layer.add(name=str(i))
        rules.include.extend(call.definition.include)
        rules.exclude.extend(call.definition.exclude)
    return [calls[int(layer.name)] for layer in filter_net(net).layer]


def needed_for(calls: Sequence[LayerCall], outputs: Iterable[Top], inputs: Iterable[Top]) -> list[LayerCall]:
    """Of these layers, those that the outputs depend on, not going below the inputs."""
    chosen = set(calls)
    wanted, stop = set(outputs), set(inputs)
    needed: set[LayerCall] = set()
    stack = [top for top in wanted if top not in stop]
    seen = set(stack)
    while stack:
        top = stack.pop()
        makers = [call for call in top.producers if call in chosen]
        needed.update(makers)
        below = [t for call in makers for t in call.inputs]
        if not makers and passes_through(top):
            below = [top.layer.inputs[top.index]]
        elif not makers:
            raise ModelError(
                f"'{top.name}' is needed, and layer '{top.layer.name}' ({top.layer.place}), which makes it, "
                "is not of this phase"
            )
        for other in below:
            if other not in seen and other not in stop:
                seen.add(other)
                stack.append(other)
    return [call for call in calls if call in needed]


def passes_through(top: Top) -> bool:
    """May the layer that makes this top, where it is for other phases only, be left out, as if its input
    stood there? So Dropout with phase="train" is nothing when testing."""
    in_place = top.layer.in_place
    if in_place is not None:
        return top.index in in_place
    return len(top.layer.inputs) == len(top.layer.tops) == 1


def render(
    everything: Sequence[LayerCall],
    calls: Sequence[LayerCall],
    header: caffe_pb2.NetParameter,
    kept: Iterable[Top] = (),
) -> Definition:
    """The net of `calls`, in their order, with header's fields.

    everything: the model's layers, by which the names are chosen, so that a model's nets agree with its file.
    kept: tops that no layer may overwrite.
    """
    definition = Definition(caffe_pb2.NetParameter())
    definition.param.CopyFrom(header)
    kept = set(kept)
    places, present = _in_place(everything, kept), set(calls)
    names = definition.names
    for call in everything:
        for top in call.inputs:  # of a layer that is not among them, where the net begins
            names.setdefault(top, top.name)
        for i, top in enumerate(call.tops):
            if call.fixed_names or top not in names:
                overwrites = i in places[call] and not call.fixed_names
                names[top] = names[call.inputs[i]] if overwrites else top.name
            if i in places[call] and call in present and call.inputs[i] is not top:
                definition.overwritten[call.inputs[i]] = call
    for call in calls:
        layer = definition.param.layer.add()
        layer.CopyFrom(call.definition)
        sources = (_present(top, call, present, kept) for top in call.inputs)
        layer.bottom.extend(names.setdefault(top, top.name) for top in sources)
        layer.top.extend(names[top] for top in call.tops)
    return definition


def _present(top: Top, reader: LayerCall, present: set[LayerCall], kept: set[Top]) -> Top:
    """The top that stands in this one's place when its layer is not in the net. Raises ModelError where there
    is none."""
    top = stand_in(top, present, kept)
    if top not in kept and not present.intersection(top.producers) and not reader.fixed_names:
        raise reader.error(
            f"it reads '{top.name}', which layer '{top.layer.name}' ({top.layer.place}) makes in another "
            "phase only; give both the same phase"
        )
    return top


def stand_in(top: Top, present: set[LayerCall], kept: Iterable[Top] = ()) -> Top:
    """The top that stands in this one's place where its layer, and those below it, are not in the net."""
    while top not in kept and not present.intersection(top.producers) and passes_through(top):
        top = top.layer.inputs[top.index]
    return top


def check_phases(definition: Definition, calls: Sequence[LayerCall]) -> None:
    """Of a net for all phases: what is read in all of them must be there in all, or be in place. Raises
    ModelError."""
    names = definition.names
    for call in calls:
        for top in call.inputs:
            maker = top.layer
            rules = list(maker.definition.include) or list(maker.definition.exclude)
            if not rules or maker.fixed_names or len(top.producers) > 1:
                continue
            if rules in (list(call.definition.include), list(call.definition.exclude)):
                continue
            if passes_through(top) and names[top] == names[maker.inputs[top.index]]:
                continue
            raise ModelError(
                f"layer '{call.name}' ({call.place}) reads '{top.name}', which layer '{maker.name}' "
                f"({maker.place}) makes in one phase only; give both the same phase"
            )


def _in_place(calls: Sequence[LayerCall], kept: set[Top]) -> dict[LayerCall, frozenset[int]]:
    """Per layer, the tops that are computed in their input's memory."""
    uses = Counter(top for call in calls for top in call.inputs)
    result: dict[LayerCall, frozenset[int]] = {}
    for call in calls:
        given = call.in_place
        if given is None:
            given = frozenset((0,)) if _may_overwrite(call, uses, kept) else frozenset()
        result[call] = given
        for i in given if not call.fixed_names else ():
            if uses[call.inputs[i]] > 1:
                later = next(c for c in reversed(calls) if call.inputs[i] in c.inputs)
                raise ModelError(
                    f"layer '{call.name}' ({call.place}) works in place on '{call.inputs[i].name}', which "
                    f"layer '{later.name}' ({later.place}) reads, too: leave out in_place=True"
                )
            if call.inputs[i] in kept:
                raise call.error(
                    f"it works in place on '{call.inputs[i].name}', which is an output of the net"
                )
    return result


def _may_overwrite(call: LayerCall, uses: Counter[Top], kept: set[Top]) -> bool:
    if call.type not in _IN_PLACE or len(call.inputs) != 1 or len(call.tops) != 1:
        return False
    bottom = call.inputs[0]
    if uses[bottom] != 1 or bottom in kept or len(bottom.producers) != 1:
        return False
    if call.type == "ReLU" and call.definition.relu_param.negative_slope < 0:
        return False
    maker = bottom.layer
    if maker.type == "ReLU" and call.type not in ("Dropout", "ReLU"):
        return False
    return maker.type in _OVERWRITABLE and not any(maker.definition.loss_weight)
