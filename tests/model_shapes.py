"""How to build the reference models without their data."""

from __future__ import annotations

import caffe
from caffe import models
from caffe.proto import caffe_pb2


def data_shapes(name: str, batch: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the tops of a model's data layers, for models.without_data."""
    if name == "mnist_siamese":
        return {"pair_data": (batch, 2, 28, 28), "sim": (batch,)}
    if name == "fcn8s":
        return {"data": (1, 3, 32, 48), "label": (1, 1, 32, 48)}
    if name == "char_rnn":
        return dict.fromkeys(("data", "cont", "target"), (3, batch))
    net = caffe.Net(str(models.path(name, "deploy.prototxt")), caffe.TEST)
    return {"data": (batch, *net.blobs["data"].shape[1:]), "label": (batch,)}


def stages(name: str) -> list[str]:
    """Of the NetState that a model's net for testing needs."""
    return ["test-on-test"] if name == "mnist_autoencoder" else []


def without_fillers(net: caffe_pb2.NetParameter) -> caffe_pb2.NetParameter:
    """The net with zeros as parameters, which take neither time nor memory."""
    for layer in net.layer:
        for field, value in layer.ListFields():
            if field.message_type is not None and field.name.endswith("_param"):
                for filler in ("weight_filler", "bias_filler"):
                    if filler in field.message_type.fields_by_name:
                        value.ClearField(filler)
    return net
