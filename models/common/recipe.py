"""From the layers between data and scores to the three files of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from caffe import NetSpec
from caffe import layers as L
from caffe.net_spec import Top, assign_proto
from caffe.proto import caffe_pb2

# The layers between data and scores: adds them to the NetSpec, returns the scores.
Body = Callable[[NetSpec, Top], Top]
Data = dict[str, Any]

# Mean of ImageNet's training images: blue, green, red, in units of a byte.
IMAGENET_MEAN = [104, 117, 123]
TRAIN, TEST = dict(phase=caffe_pb2.TRAIN), dict(phase=caffe_pb2.TEST)


def lmdb(source: str, batch_size: int, **transform: Any) -> Data:
    """Parameters of a Data layer. transform: fields of transform_param."""
    settings = dict(source=source, batch_size=batch_size, backend="LMDB")
    return dict(data_param=settings, **(dict(transform_param=transform) if transform else {}))


def imagenet(crop: int, batch_size: int, test_batch_size: int, **transform: Any) -> tuple[Data, Data]:
    """Data of ImageNet (ILSVRC 2012) for training and testing, where Caffe's users have it."""
    transform = {"crop_size": crop, "mean_value": IMAGENET_MEAN, **transform}
    folder = "examples/imagenet/ilsvrc12"
    return (
        lmdb(f"{folder}_train_lmdb", batch_size, mirror=True, **transform),
        lmdb(f"{folder}_val_lmdb", test_batch_size, mirror=False, **transform),
    )


def classifier(
    name: str,
    body: Body,
    data: tuple[Data, Data],
    top_5: bool = False,
    data_type: str = "Data",
    layer: str = "data",
) -> caffe_pb2.NetParameter:
    """The net for training and testing a classifier. data: parameters of the data layers (train, test)."""
    n = NetSpec()
    n.data, n.label = getattr(L, data_type)(ntop=2, name=layer, include=TRAIN, **data[0])
    scores = body(n, n.data)
    n.accuracy = L.Accuracy(scores, n.label, include=TEST)
    if top_5:
        n["accuracy_top5"] = L.Accuracy(scores, n.label, top_k=5, include=TEST)
    n.loss = L.SoftmaxWithLoss(scores, n.label)
    return with_test_data(name, n, data[1])


def with_test_data(name: str, n: NetSpec, *tests: Data) -> caffe_pb2.NetParameter:
    """The net of n, whose first layers are for training; behind each stands its like for testing.

    A NetSpec has one layer for each top; here two layers make the same tops, in different phases.
    tests: the parameters of the layers for testing, as many as there are layers of training data.
    """
    net = caffe_pb2.NetParameter(name=name)
    for index, layer in enumerate(n.to_proto().layer):
        net.layer.append(layer)
        if index < len(tests):
            twin = net.layer.add(name=layer.name, type=layer.type, top=layer.top)
            for field, value in {"include": TEST, **tests[index]}.items():
                assign_proto(twin, field, value)
    return net


def deploy(
    name: str, body: Body, shape: Sequence[int], output: str = "prob", output_type: str = "Softmax"
) -> caffe_pb2.NetParameter:
    """The net for use: an input of that shape, and probabilities. output "": the body's own top is last."""
    n = NetSpec()
    n.data = L.Input(input_param=dict(shape=dict(dim=shape)))
    scores = body(n, n.data)
    if output:
        n[output] = getattr(L, output_type)(scores)
    return for_use(name, n.to_proto())


def for_use(name: str, net: caffe_pb2.NetParameter) -> caffe_pb2.NetParameter:
    """The net without what only training reads: rates, fillers."""
    result = caffe_pb2.NetParameter(name=name)
    result.MergeFrom(net)
    for layer in result.layer:
        named = [caffe_pb2.ParamSpec(name=p.name) for p in layer.param if p.name]
        del layer.param[:]
        layer.param.extend(named)
        for field, value in layer.ListFields():
            if field.message_type is not None and field.name.endswith("_param"):
                for filler in ("weight_filler", "bias_filler", "filler"):
                    if filler in field.message_type.fields_by_name:
                        value.ClearField(filler)
    return result


def solver(
    net: str, *, definition: str = "train_val.prototxt", prefix: str = "", **fields: Any
) -> caffe_pb2.SolverParameter:
    """The solver of models/<net>/, on the CPU unless told otherwise. prefix: of the snapshots' names, which
    lie beside it otherwise."""
    param = caffe_pb2.SolverParameter()
    # The net is found beside the solver, from any folder.
    prefix = prefix or f"models/{net}/{net}"
    settings = dict(net=definition, **fields, snapshot_prefix=prefix, solver_mode="CPU")
    for field, value in settings.items():
        assign_proto(param, field, value)
    return param
