"""Old definitions brought to the current format, in place, as Caffe does on every load.

    V0    layers { layer { type: "conv" kernelsize: 3 } bottom: … }      2013
    V1    layers { type: CONVOLUTION convolution_param { … } }           2014
    now   layer { type: "Convolution" convolution_param { … } }

A net passes, in this order, through the steps that it needs: V0 → V1 (padding layers merge into the
convolution or pooling after them), data transformation fields → transform_param, V1 → now,
`input` fields → an Input layer, BatchNorm's three param specs → never learned. A solver's enum
`solver_type` becomes the string `type`, and its snapshot_prefix is completed.

What the schema says about names and types is written as tables; the steps walk the tables.
Source: the schema (proto/caffe.proto) and the recorded results of the original's upgrade tools.
"""

from __future__ import annotations

import logging
import os

from . import proto_text
from .errors import ProtoError
from .proto.caffe_pb2 import LayerParameter, NetParameter, SolverParameter, V1LayerParameter
from .upgrade_v0 import upgrade_v0_net

_log = logging.getLogger("caffe")

# V1 data layers -> the parameter message out of which these fields move into transform_param.
_DATA_PARAMS = {"DATA": "data_param", "IMAGE_DATA": "image_data_param", "WINDOW_DATA": "window_data_param"}
_TRANSFORM_FIELDS = ("scale", "mean_file", "crop_size", "mirror")

_V1_TYPES = {
    "NONE": "",
    "ABSVAL": "AbsVal",
    "ACCURACY": "Accuracy",
    "ARGMAX": "ArgMax",
    "BNLL": "BNLL",
    "CONCAT": "Concat",
    "CONTRASTIVE_LOSS": "ContrastiveLoss",
    "CONVOLUTION": "Convolution",
    "DATA": "Data",
    "DECONVOLUTION": "Deconvolution",
    "DROPOUT": "Dropout",
    "DUMMY_DATA": "DummyData",
    "EUCLIDEAN_LOSS": "EuclideanLoss",
    "ELTWISE": "Eltwise",
    "EXP": "Exp",
    "FLATTEN": "Flatten",
    "HDF5_DATA": "HDF5Data",
    "HDF5_OUTPUT": "HDF5Output",
    "HINGE_LOSS": "HingeLoss",
    "IM2COL": "Im2col",
    "IMAGE_DATA": "ImageData",
    "INFOGAIN_LOSS": "InfogainLoss",
    "INNER_PRODUCT": "InnerProduct",
    "LRN": "LRN",
    "MEMORY_DATA": "MemoryData",
    "MULTINOMIAL_LOGISTIC_LOSS": "MultinomialLogisticLoss",
    "MVN": "MVN",
    "POOLING": "Pooling",
    "POWER": "Power",
    "RELU": "ReLU",
    "SIGMOID": "Sigmoid",
    "SIGMOID_CROSS_ENTROPY_LOSS": "SigmoidCrossEntropyLoss",
    "SILENCE": "Silence",
    "SOFTMAX": "Softmax",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "SPLIT": "Split",
    "SLICE": "Slice",
    "TANH": "TanH",
    "WINDOW_DATA": "WindowData",
    "THRESHOLD": "Threshold",
}

# V1 field, repeated once per parameter -> its name in the current ParamSpec.
_V1_PARAM_SPEC = {
    "param": "name",
    "blob_share_mode": "share_mode",
    "blobs_lr": "lr_mult",
    "weight_decay": "decay_mult",
}

_SOLVER_TYPES = {
    "SGD": "SGD",
    "NESTEROV": "Nesterov",
    "ADAGRAD": "AdaGrad",
    "RMSPROP": "RMSProp",
    "ADADELTA": "AdaDelta",
    "ADAM": "Adam",
}


# ---------------------------------------------------------------- reading files


def read_net_upgraded(path: str | os.PathLike[str]) -> NetParameter:
    """The net that a prototxt of any age defines, in the current format. Raises ProtoError."""
    param = proto_text.read_net(path)
    upgrade_net(param, os.fspath(path))
    return param


def read_solver_upgraded(path: str | os.PathLike[str]) -> SolverParameter:
    """The solver that a prototxt of any age defines, in the current format. Raises ProtoError.

    Net files are sought where the process runs, as the original does, else beside the solver's file.
    """
    param = proto_text.read_solver(path)
    upgrade_solver(param, path)
    folder = os.path.dirname(os.fspath(path))
    for field in ("net", "train_net"):
        if param.HasField(field):
            setattr(param, field, _here_or_in(folder, getattr(param, field)))
    param.test_net[:] = [_here_or_in(folder, net) for net in param.test_net]
    return param


def _here_or_in(folder: str, path: str) -> str:
    beside = os.path.join(folder, path)
    return beside if not os.path.exists(path) and os.path.exists(beside) else path


# ---------------------------------------------------------------- nets


def net_needs_upgrade(param: NetParameter) -> bool:
    """Whether upgrade_net would change anything."""
    return bool(param.layers or param.input or _old_batch_norms(param))


def upgrade_net(param: NetParameter, source: str = "") -> bool:
    """Bring param to the current format, in place. `source`: its file, named in logs and errors.

    Returns False when an old field has no place in its layer's new parameters; it is left behind,
    logged as an error, and the rest goes on. The blobs are moved along as they are. Raises ProtoError
    for what the original refuses; param may then be upgraded in part.
    """
    try:
        return _upgrade_net(param, source)
    except ProtoError as error:
        raise ProtoError(f"{source}: {error}" if source else str(error)) from None


def _upgrade_net(param: NetParameter, source: str) -> bool:
    complete = True
    if any(layer.HasField("layer") for layer in param.layers):
        _log.info("Attempting to upgrade input file specified using deprecated V0LayerParameter: %s", source)
        complete = upgrade_v0_net(param)
        if complete:
            _log.info("Successfully upgraded file specified using deprecated V0LayerParameter")
        else:
            _log.error(
                "Warning: had one or more problems upgrading V0NetParameter to NetParameter (see above); "
                "continuing anyway."
            )
        _log.warning(
            "Note that future Caffe releases will not support V0NetParameter; use upgrade_net_proto_text "
            "for prototxt and upgrade_net_proto_binary for model weights upgrade this and any other net "
            "protos to the new format."
        )
    if _needs_data_upgrade(param):
        _log.info(
            "Attempting to upgrade input file specified using deprecated transformation parameters: %s",
            source,
        )
        _upgrade_data(param)
        _log.info("Successfully upgraded file specified using deprecated data transformation parameters.")
        _log.warning(
            "Note that future Caffe releases will only support transform_param messages for "
            "transformation fields."
        )
    if param.layers:
        _log.info("Attempting to upgrade input file specified using deprecated V1LayerParameter: %s", source)
        _upgrade_v1(param)
        _log.info("Successfully upgraded file specified using deprecated V1LayerParameter")
    if param.input:
        _log.info("Attempting to upgrade input file specified using deprecated input fields: %s", source)
        _upgrade_input(param)
        _log.info("Successfully upgraded file specified using deprecated input fields.")
        _log.warning("Note that future Caffe releases will only support input layers and not input fields.")
    batch_norms = _old_batch_norms(param)
    if batch_norms:
        _log.info("Attempting to upgrade batch norm layers using deprecated params: %s", source)
        for layer in batch_norms:
            for spec in layer.param:
                spec.lr_mult = 0
                spec.decay_mult = 0
        _log.info("Successfully upgraded batch norm layers using deprecated params.")
    return complete


def _needs_data_upgrade(param: NetParameter) -> bool:
    for layer in param.layers:
        data_param = _DATA_PARAMS.get(_v1_type(layer))
        if data_param and any(getattr(layer, data_param).HasField(f) for f in _TRANSFORM_FIELDS):
            return True
    return False


def _upgrade_data(param: NetParameter) -> None:
    for layer in param.layers:
        data_param = _DATA_PARAMS.get(_v1_type(layer))
        if not data_param:
            continue
        # Once one data layer of a net is old, the original gives all of them both messages.
        old, new = getattr(layer, data_param), layer.transform_param
        old.SetInParent()
        new.SetInParent()
        for field in _TRANSFORM_FIELDS:
            if old.HasField(field):
                setattr(new, field, getattr(old, field))
                old.ClearField(field)


def _upgrade_v1(param: NetParameter) -> None:
    if param.layer:
        raise ProtoError(
            "Refusing to upgrade inconsistent NetParameter input; the definition includes both 'layer' and "
            "'layers' fields. The current format defines 'layer' fields with string type like "
            "layer { type: 'Layer' ... } and not layers { type: LAYER ... }. Manually switch the definition "
            "to 'layer' format to continue."
        )
    for old in param.layers:
        _upgrade_v1_layer(old, param.layer.add())
    param.ClearField("layers")


def _upgrade_v1_layer(old: V1LayerParameter, new: LayerParameter) -> None:
    for descriptor, value in old.ListFields():
        field = descriptor.name
        if field == "name":
            new.name = value
        elif field == "type":
            new.type = _V1_TYPES[_v1_type(old)]
        elif field in _V1_PARAM_SPEC:
            for i, entry in enumerate(value):
                while len(new.param) <= i:
                    new.param.add()
                setattr(new.param[i], _V1_PARAM_SPEC[field], entry)
        else:  # repeated fields and parameter messages that are the same in both
            place = getattr(new, field)
            if hasattr(place, "SetInParent"):
                place.SetInParent()  # an empty message counts as set
            place.MergeFrom(value)


def _v1_type(layer: V1LayerParameter) -> str:
    return V1LayerParameter.LayerType.Name(layer.type)


def _upgrade_input(param: NetParameter) -> None:
    """`input` fields → one Input layer in front. Without any shape they just go, as in the original:
    weights files of that time name inputs whose shapes only the prototxt knew.
    """
    if param.input_shape or param.input_dim:
        layer = LayerParameter(name="input", type="Input", top=param.input)
        if param.input_shape:
            have, need, what = len(param.input_shape), len(param.input), "input_shape once"
            layer.input_param.shape.MergeFrom(param.input_shape[:need])
        else:
            have, need, what = len(param.input_dim), 4 * len(param.input), "input_dim four times"
            for first in range(0, need, 4):
                layer.input_param.shape.add(dim=param.input_dim[first : first + 4])
        inputs = f"{len(param.input)} inputs ({', '.join(param.input)})"
        rule = f"{what} per input: {inputs} need {need}, have {have}"
        if have < need:
            raise ProtoError(f"Specify {rule}")
        if have > need:
            _log.warning("Specify %s; the rest is ignored", rule)
        param.layer.insert(0, layer)
    for field in ("input", "input_shape", "input_dim"):
        param.ClearField(field)


def _old_batch_norms(param: NetParameter) -> list[LayerParameter]:
    """BatchNorm layers with three param specs: in old nets the way to keep the statistics unlearned."""
    return [layer for layer in param.layer if layer.type == "BatchNorm" and len(layer.param) == 3]


# ---------------------------------------------------------------- solvers


def solver_needs_upgrade(param: SolverParameter) -> bool:
    """Whether the solver's type is given as the old enum."""
    return param.HasField("solver_type")


def upgrade_solver(param: SolverParameter, path: str | os.PathLike[str] = "") -> bool:
    """All that happens to a solver on load: its type, then its snapshot_prefix. In place.

    path: the solver's file. Nets inside the solver are left as they are. Returns whether anything
    changed. Raises ProtoError when the type is given in both ways.
    """
    changed = upgrade_solver_type(param, os.fspath(path))
    return complete_snapshot_prefix(param, path) or changed


def upgrade_solver_type(param: SolverParameter, source: str = "") -> bool:
    """The enum `solver_type` → the string `type`, in place. Returns whether there was one to replace."""
    if not solver_needs_upgrade(param):
        return False
    _log.info(
        "Attempting to upgrade input file specified using deprecated 'solver_type' field (enum)': %s", source
    )
    if param.HasField("type"):
        where = f"{source}: " if source else ""
        raise ProtoError(
            f"{where}Failed to upgrade solver: old solver_type field (enum) and new type field (string) "
            "cannot be both specified in solver proto text. Remove solver_type."
        )
    param.type = _SOLVER_TYPES[SolverParameter.SolverType.Name(param.solver_type)]
    param.ClearField("solver_type")
    _log.info(
        "Successfully upgraded file specified using deprecated 'solver_type' field (enum) to 'type' field "
        "(string)."
    )
    _log.warning(
        "Note that future Caffe releases will only support 'type' field (string) for a solver's type."
    )
    return True


def complete_snapshot_prefix(param: SolverParameter, path: str | os.PathLike[str]) -> bool:
    """No snapshot_prefix → the solver's file without extension; a directory → that file's stem in it.

    Returns whether it was changed. A solver without a file (path "") keeps what it has.
    """
    stem = os.path.splitext(os.fspath(path))[0]
    if not stem:
        return False
    if not param.snapshot_prefix:
        param.snapshot_prefix = stem
        _log.info("snapshot_prefix was not specified and is set to %s", param.snapshot_prefix)
    elif os.path.isdir(param.snapshot_prefix):
        param.snapshot_prefix = os.path.join(param.snapshot_prefix, os.path.basename(stem))
        _log.info("snapshot_prefix was a directory and is replaced to %s", param.snapshot_prefix)
    else:
        return False
    return True
