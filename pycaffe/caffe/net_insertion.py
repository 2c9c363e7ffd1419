"""What happens to a net's definition before its layers are made: rules filter it, splits are inserted.

Both are pure functions on NetParameter: `filter_net` keeps the layers whose include or exclude rules fit
the NetState (phase, level, stages); `insert_splits` puts a Split layer behind every top that has more
than one use, so that each use has a diff of its own and their sum is the top's diff.
"""

from __future__ import annotations

import logging
from collections import Counter

from .errors import NetError, closest
from .proto.caffe_pb2 import NetParameter, NetState, NetStateRule

_log = logging.getLogger("caffe")

_Top = tuple[int, int]  # (layer index, top index)


def filter_net(param: NetParameter, state: NetState | None = None) -> NetParameter:
    """A copy of param with only the layers whose rules fit the state.

    state: by default param.state; otherwise it also becomes the copy's state.
    A layer with include rules stays when one of them is met, one with exclude rules goes when one is met,
    one without rules stays. Raises NetError when a layer has both kinds.
    """
    result = _without_layers(param)
    if state is not None:
        result.state.CopyFrom(state)
    for layer in param.layer:
        if layer.include and layer.exclude:
            raise NetError(f"layer '{layer.name}': Specify either include rules or exclude rules; not both.")
        rules = layer.include or layer.exclude
        met = any(_meets(result.state, rule, layer.name) for rule in rules)
        if met == bool(layer.include):
            result.layer.add().CopyFrom(layer)
    return result


def _meets(state: NetState, rule: NetStateRule, layer: str) -> bool:
    """Whether the state satisfies all of the rule; the log says what the first unsatisfied part is."""
    if rule.HasField("phase") and state.phase != rule.phase:
        why = f"phase ({state.phase}) differed from the phase ({rule.phase})"
    elif rule.HasField("min_level") and state.level < rule.min_level:
        why = f"level ({state.level}) is below the min_level ({rule.min_level})"
    elif rule.HasField("max_level") and state.level > rule.max_level:
        why = f"level ({state.level}) is above the max_level ({rule.max_level})"
    elif missing := [stage for stage in rule.stage if stage not in state.stage]:
        why = f"did not contain stage '{missing[0]}'"
    elif unwanted := [stage for stage in rule.not_stage if stage in state.stage]:
        why = f"contained a not_stage '{unwanted[0]}'"
    else:
        return True
    _log.info("The NetState %s specified by a rule in layer %s", why, layer)
    return False


def insert_splits(param: NetParameter) -> NetParameter:
    """A copy of param in which no top is used twice.

    Uses are bottoms of later layers, and a non-zero loss_weight. The Split of top i, 'blob', of layer
    'name' is called 'blob_name_i_split' and follows that layer; its tops 'blob_name_i_split_0', … go to
    the users in order, the first being kept for a loss_weight. A blob that layers change in place belongs
    to the last of them, so that the Split stands behind it. Applied again, nothing changes.
    Raises NetError for a bottom that no layer above makes.
    """
    source_of: dict[tuple[int, int], _Top] = {}  # (layer index, bottom index) -> top it reads
    uses: Counter[_Top] = Counter()
    loss_weight: dict[_Top, float] = {}
    latest: dict[str, _Top] = {}  # blob name -> where it was made or changed last
    for i, layer in enumerate(param.layer):
        for j, blob in enumerate(layer.bottom):
            if blob not in latest:
                raise _unknown_bottom_error(param, i, j, list(latest))
            source_of[i, j] = latest[blob]
            uses[latest[blob]] += 1
        for j, blob in enumerate(layer.top):
            latest[blob] = i, j
        for j, (_, weight) in enumerate(zip(layer.top, layer.loss_weight, strict=False)):
            if weight:
                loss_weight[i, j] = weight
                uses[i, j] += 1

    result = _without_layers(param)
    given = Counter(loss_weight.keys())  # split tops of each top that are taken
    for i, layer in enumerate(param.layer):
        copy = result.layer.add()
        copy.CopyFrom(layer)
        for j, blob in enumerate(layer.bottom):
            top = source_of[i, j]
            if uses[top] > 1:
                split = _split_name(param.layer[top[0]].name, blob, top[1])
                copy.bottom[j] = f"{split}_{given[top]}"
                given[top] += 1
        for j, blob in enumerate(layer.top):
            if uses[i, j] > 1:
                split = _split_name(layer.name, blob, j)
                tops = [f"{split}_{k}" for k in range(uses[i, j])]
                split_layer = result.layer.add(name=split, type="Split", bottom=[blob], top=tops)
                if (i, j) in loss_weight:
                    split_layer.loss_weight.extend([loss_weight[i, j]] + [0.0] * (len(tops) - 1))
                    # Zero, not absent: a loss layer without the field would count itself once more, and
                    # the weights of the layer's other tops stay.
                    copy.loss_weight[j] = 0
    return result


def duplicate_top_error(blob: str, first_layer: str, second_layer: str) -> NetError:
    """The error for a top that a second layer makes, but not in place."""
    return NetError(
        f"Top blob '{blob}' produced by multiple sources. Layers '{first_layer}' and '{second_layer}' both "
        "have it as a top. If one is for training and one for testing, give them include { phase: TRAIN } "
        f"and include {{ phase: TEST }}; if '{second_layer}' shall work in place on '{blob}', put it before "
        "every other layer that reads the blob; otherwise rename one of the tops."
    )


def _unknown_bottom_error(param: NetParameter, i: int, j: int, known: list[str]) -> NetError:
    layer, blob = param.layer[i], param.layer[i].bottom[j]
    text = f"Unknown bottom blob '{blob}' (layer '{layer.name}', bottom index {j})"
    makers = [later.name for later in param.layer[i + 1 :] if blob in later.top]
    near = closest(blob, known)
    if makers:
        text += f"; layer '{makers[0]}' makes it, but stands below: move '{makers[0]}' above '{layer.name}'"
    elif near:
        text += near
    elif blob == "label" or layer.type == "Accuracy" or layer.type.endswith("Loss"):
        text += (
            f". A net that is deployed has no labels: remove layer '{layer.name}', or keep it for training "
            "with include { phase: TRAIN }; in training, check that a data layer of this phase makes the blob"
        )
    listed = ", ".join(known[-20:]) or "none"
    more = f"{len(known) - 20} more, then " if len(known) > 20 else ""
    return NetError(f"{text}. Blobs known above this layer: {more}{listed}.")


def _split_name(layer: str, blob: str, top_index: int) -> str:
    return f"{blob}_{layer}_{top_index}_split"


def _without_layers(param: NetParameter) -> NetParameter:
    result = NetParameter()
    result.CopyFrom(param)
    result.ClearField("layer")
    return result
