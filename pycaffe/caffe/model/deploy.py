"""The net of a model as it is deployed: inputs in place of data, scores in place of losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..proto import caffe_pb2
from .definition import METRICS, Definition, in_phase, is_data, is_loss, needed_for, render, stand_in
from .graph import LayerCall, ModelError, Top

# What makes probabilities of a loss's scores.
_OUTPUTS = {
    "SoftmaxWithLoss": "Softmax",
    "SigmoidCrossEntropyLoss": "Sigmoid",
}


def define(
    layers: Sequence[LayerCall],
    header: caffe_pb2.NetParameter,
    outputs: Sequence[Top] | None,
    inputs: Sequence[Top],
    shape_of: Callable[[Top], tuple[int, ...]],
) -> Definition:
    """outputs: None means the scores of the losses, as probabilities where the loss makes some (a blob
    'prob'). inputs: besides those of data layers."""
    calls = in_phase(layers, caffe_pb2.TEST)
    losses = [call for call in calls if is_loss(call)]
    present = set(calls)
    scores = _scores(calls, losses) if outputs is None else [stand_in(t, present, inputs) for t in outputs]
    data = [top for call in calls if is_data(call) for top in call.tops]
    stop = [*inputs, *(top for top in data if top not in inputs)]
    chosen = needed_for(calls, scores, stop)
    needed = {stand_in(top, set(chosen), stop) for call in chosen for top in call.inputs} | set(scores)
    definition = render(chosen, chosen, header, [*scores, *stop])
    put_inputs(definition, [top for top in stop if top in needed], shape_of, batch=1)
    if outputs is None:
        _add_probabilities(definition, losses)
    else:
        for top, there in zip(outputs, scores, strict=True):
            definition.names[top] = definition.names.setdefault(there, there.name)
    return definition


def _scores(calls: Sequence[LayerCall], losses: Sequence[LayerCall]) -> list[Top]:
    scores = [call.inputs[0] for call in losses if call.inputs]
    if not losses:
        skipped = {call for call in calls if call.type in METRICS or is_data(call)}
        taken = {top for call in calls if call not in skipped for top in call.inputs}
        scores = [t for call in calls if call not in skipped for t in call.tops if t not in taken]
    if not scores:
        raise ModelError("the model has neither a loss nor an output to deploy: give outputs=[...]")
    return list(dict.fromkeys(scores))


def put_inputs(
    definition: Definition,
    inputs: Sequence[Top],
    shape_of: Callable[[Top], tuple[int, ...]],
    batch: int | None = None,
) -> None:
    """An Input layer in front for each of these tops. batch: another first dimension."""
    rest = list(definition.param.layer)
    made = {name for layer in rest for name in layer.top if name not in layer.bottom}
    del definition.param.layer[:]
    for top in inputs:
        name = definition.names.setdefault(top, top.name)
        if name in made:  # a top of a layer that is there for another of its tops
            raise ModelError(
                f"'{name}' cannot be an input: layer '{top.layer.name}' ({top.layer.place}), which makes it, "
                "is needed for another top; make that one an input, too"
            )
        shape = list(shape_of(top))
        if batch is not None and shape:
            shape[0] = batch
        layer = definition.param.layer.add(name=name, type="Input", top=[name])
        layer.input_param.shape.add(dim=shape)
    for layer in rest:
        definition.param.layer.add().CopyFrom(layer)


def _add_probabilities(definition: Definition, losses: Sequence[LayerCall]) -> None:
    names, used = definition.names, {name for layer in definition.param.layer for name in layer.top}
    done: set[str] = set()
    for call in losses:
        bottom = names[call.inputs[0]]
        if call.type not in _OUTPUTS or bottom in done:
            continue
        done.add(bottom)
        name, number = "prob", 1
        while name in used:
            number += 1
            name = f"prob{number}"
        used.add(name)
        layer = definition.param.layer.add(name=name, type=_OUTPUTS[call.type], bottom=[bottom], top=[name])
        if call.definition.HasField("softmax_param"):
            layer.softmax_param.CopyFrom(call.definition.softmax_param)
