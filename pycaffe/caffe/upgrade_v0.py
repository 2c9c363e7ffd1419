"""V0 definitions (2013) → V1: `layers { layer { type: "conv" kernelsize: 3 } bottom: "data" top: "y" }`.

A V0 layer is flat: one message has the fields of all types. The tables below say where each field went.
A padding layer is no layer any more: its pad goes to the conv or pool layers that read it.
Source: the schema (proto/caffe.proto) and the recorded results of the original's upgrade tools.
"""

from __future__ import annotations

import logging
from typing import Any

from .errors import ProtoError, closest
from .proto.caffe_pb2 import NetParameter, V1LayerParameter

_log = logging.getLogger("caffe")

# Type -> V1 type, and the V1 parameter message that takes its fields.
_TYPES = {
    "accuracy": ("ACCURACY", ""),
    "bnll": ("BNLL", ""),
    "concat": ("CONCAT", "concat_param"),
    "conv": ("CONVOLUTION", "convolution_param"),
    "data": ("DATA", "data_param"),
    "dropout": ("DROPOUT", "dropout_param"),
    "euclidean_loss": ("EUCLIDEAN_LOSS", ""),
    "flatten": ("FLATTEN", ""),
    "hdf5_data": ("HDF5_DATA", "hdf5_data_param"),
    "hdf5_output": ("HDF5_OUTPUT", "hdf5_output_param"),
    "im2col": ("IM2COL", ""),
    "images": ("IMAGE_DATA", "image_data_param"),
    "infogain_loss": ("INFOGAIN_LOSS", "infogain_loss_param"),
    "innerproduct": ("INNER_PRODUCT", "inner_product_param"),
    "lrn": ("LRN", "lrn_param"),
    "multinomial_logistic_loss": ("MULTINOMIAL_LOGISTIC_LOSS", ""),
    "pool": ("POOLING", "pooling_param"),
    "relu": ("RELU", ""),
    "sigmoid": ("SIGMOID", ""),
    "softmax": ("SOFTMAX", ""),
    "softmax_loss": ("SOFTMAX_LOSS", ""),
    "split": ("SPLIT", ""),
    "tanh": ("TANH", ""),
    "window_data": ("WINDOW_DATA", "window_data_param"),
}

# Field -> its name in the type's V1 parameter message, and the types that have it.
_FIELDS = {
    "num_output": ("num_output", "conv innerproduct"),
    "biasterm": ("bias_term", "conv innerproduct"),
    "weight_filler": ("weight_filler", "conv innerproduct"),
    "bias_filler": ("bias_filler", "conv innerproduct"),
    "pad": ("pad", "conv pool"),
    "kernelsize": ("kernel_size", "conv pool"),
    "group": ("group", "conv"),
    "stride": ("stride", "conv pool"),
    "pool": ("pool", "pool"),
    "dropout_ratio": ("dropout_ratio", "dropout"),
    "local_size": ("local_size", "lrn"),
    "alpha": ("alpha", "lrn"),
    "beta": ("beta", "lrn"),
    "k": ("k", "lrn"),
    "source": ("source", "data hdf5_data images window_data infogain_loss"),
    "batchsize": ("batch_size", "data hdf5_data images window_data"),
    "rand_skip": ("rand_skip", "data images"),
    "shuffle_images": ("shuffle", "images"),
    "new_height": ("new_height", "images"),
    "new_width": ("new_width", "images"),
    "concat_dim": ("concat_dim", "concat"),
    "det_fg_threshold": ("fg_threshold", "window_data"),
    "det_bg_threshold": ("bg_threshold", "window_data"),
    "det_fg_fraction": ("fg_fraction", "window_data"),
    "det_context_pad": ("context_pad", "window_data"),
    "det_crop_mode": ("crop_mode", "window_data"),
}

# Field -> its name in transform_param, whatever the type.
_TRANSFORM_FIELDS = {"scale": "scale", "meanfile": "mean_file", "cropsize": "crop_size", "mirror": "mirror"}

# Fields that a V1 layer has as well, outside any parameter message.
_PLAIN_FIELDS = ("name", "blobs", "blobs_lr", "weight_decay")

# Fields that no type ever had a use for.
_UNUSED_FIELDS = ("new_num", "new_channels")


def upgrade_v0_net(param: NetParameter) -> bool:
    """V0 → V1, in place.

    As in the original, the net keeps its name, inputs and force_backward, and each layer its bottoms, tops
    and inner layer; whatever else stands beside them is left behind, with a warning. Returns False when a
    layer has a field that is not of its type: left behind, too, with an error in the log. Raises ProtoError
    for an unknown type or bottom, and for a padding layer that cannot be merged.
    """
    _merge_padding(param)
    old_count = len(param.layers)
    complete = True
    for i in range(old_count):
        complete &= _upgrade_layer(param.layers[i], param.layers.add())
    del param.layers[:old_count]
    kept = ("name", "layers", "input", "input_dim", "force_backward")
    for field in [descriptor.name for descriptor, _ in param.ListFields()]:
        if field not in kept:
            _log.warning("A V0 net has no field '%s': it is left behind", field)
            param.ClearField(field)
    return complete


def _merge_padding(param: NetParameter) -> None:
    producer: dict[str, V1LayerParameter | None] = dict.fromkeys(param.input)
    for i, connection in enumerate(param.layers):
        name = connection.layer.name
        for j, blob in enumerate(connection.bottom):
            if blob not in producer:
                raise ProtoError(
                    f"Unknown blob input {blob} to layer {i} ('{name}', bottom {j}): no input and no layer "
                    f"before it has this top{closest(blob, producer)}"
                )
            padding = producer[blob]
            if padding is not None and padding.layer.type == "padding":
                _check_padding(padding, connection)
                connection.layer.pad = padding.layer.pad
                connection.bottom[j] = padding.bottom[0]
        producer.update(dict.fromkeys(connection.top, connection))
    for i in reversed(range(len(param.layers))):
        if param.layers[i].layer.type == "padding":
            del param.layers[i]


def _check_padding(padding: V1LayerParameter, reader: V1LayerParameter) -> None:
    about = f"padding layer '{padding.layer.name}' before layer '{reader.layer.name}'"
    if reader.layer.type not in ("conv", "pool"):
        raise ProtoError(
            "Padding layer input to non-convolutional / non-pooling layer type "
            f"{reader.layer.type} ({about}): pad can only be merged into a conv or pool layer"
        )
    if len(reader.bottom) != 1:
        raise ProtoError(f"Conv Layer takes a single blob as input. ({about})")
    if len(padding.bottom) != 1:
        raise ProtoError(f"Padding Layer takes a single blob as input. ({about})")
    if len(padding.top) != 1:
        raise ProtoError(f"Padding Layer produces a single blob as output. ({about})")


def _upgrade_layer(old: V1LayerParameter, new: V1LayerParameter) -> bool:
    v0 = old.layer
    for descriptor, _ in old.ListFields():
        if descriptor.name not in ("bottom", "top", "layer"):
            _log.warning("V0 layer '%s': field '%s' beside it is left behind", v0.name, descriptor.name)
    new.bottom.extend(old.bottom)
    new.top.extend(old.top)
    param_name = ""
    if v0.HasField("type"):
        if v0.type not in _TYPES:
            raise ProtoError(f"Unknown layer name: {v0.type} (layer '{v0.name}'){closest(v0.type, _TYPES)}")
        v1_type, param_name = _TYPES[v0.type]
        new.type = getattr(V1LayerParameter, v1_type)
    complete = True
    for descriptor, value in v0.ListFields():
        field = descriptor.name
        if field in _PLAIN_FIELDS:
            _set(new, field, value)
        elif field in _TRANSFORM_FIELDS:
            _set(new.transform_param, _TRANSFORM_FIELDS[field], value)
        elif field == "hdf5_output_param" and v0.type == "hdf5_output":
            _set(new, field, value)
        elif field in _FIELDS and v0.type in _FIELDS[field][1].split():
            _set(getattr(new, param_name), _FIELDS[field][0], value)
        elif field in _UNUSED_FIELDS:
            _log.warning("V0 layer '%s': field '%s' is left behind", v0.name, field)
        elif field != "type":
            _log.error("Unknown parameter %s for layer type %s", field, v0.type)
            complete = False
    return complete


def _set(message: Any, field: str, value: Any) -> None:
    """message.field = value, whatever its kind: a single value for a repeated field is appended."""
    place = getattr(message, field)
    if hasattr(value, "MergeFrom"):
        if hasattr(place, "SetInParent"):
            place.SetInParent()  # an empty message counts as set
        place.MergeFrom(value)
    elif hasattr(place, "append"):
        place.append(value)
    else:
        setattr(message, field, value)
