"""A spec as prototxt, and this project running it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .specs import NETS, Op


def prototxt(name: str, batch: int, train: bool) -> str:
    """The net with an Input layer; for training with labels and a loss, else with a Softmax."""
    net = NETS[name]
    dims = " ".join(f"dim: {d}" for d in (batch, *net.image))
    tops, shapes = 'top: "data"', f"shape {{ {dims} }}"
    if train:
        tops, shapes = f'{tops} top: "label"', f"{shapes} shape {{ dim: {batch} }}"
    lines = [f'name: "{name}"', f'layer {{ name: "data" type: "Input" {tops} input_param {{ {shapes} }} }}']
    blob = {"data": "data"}
    for op in net.build():
        lines += _layers(op, [blob[x] for x in op.inputs], blob)
    last = blob[net.build()[-1].name]
    if train:
        lines.append(
            f'layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "{last}" bottom: "label" top: "loss" }}'
        )
    else:
        lines.append(f'layer {{ name: "prob" type: "Softmax" bottom: "{last}" top: "prob" }}')
    return "\n".join(lines)


def _layers(op: Op, bottoms: list[str], blob: dict[str, str]) -> list[str]:
    names = " ".join(f'bottom: "{x}"' for x in bottoms)
    in_place = op.kind in ("bn", "relu", "drop")
    top = bottoms[0] if in_place else op.name
    blob[op.name] = top

    def layer(type: str, fields: str = "", name: str = op.name, bottom: str = names) -> str:
        return f'layer {{ name: "{name}" type: "{type}" {bottom} top: "{top}" {fields} }}'

    here = f'bottom: "{top}"'
    filler = 'weight_filler { type: "msra" }'
    lines = []
    if op.kind == "conv":
        fields = f"num_output: {op.o} kernel_size: {op.k} stride: {op.s} pad: {op.p} group: {op.g} {filler}"
        bias = "" if op.bias else " bias_term: false"
        lines.append(layer("Convolution", f"convolution_param {{ {fields}{bias} }}"))
    elif op.kind == "ip":
        lines.append(layer("InnerProduct", f"inner_product_param {{ num_output: {op.o} {filler} }}"))
    elif op.kind == "bn":
        lines.append(layer("BatchNorm"))
        lines.append(layer("Scale", "scale_param { bias_term: true }", f"{op.name}_scale"))
    elif op.kind == "pool":
        size = f"kernel_size: {op.k} stride: {op.s} pad: {op.p}" if op.k else "global_pooling: true"
        lines.append(layer("Pooling", f"pooling_param {{ pool: {op.t.upper()} {size} }}"))
    elif op.kind == "lrn":
        region = " norm_region: WITHIN_CHANNEL" if op.within else ""
        lines.append(
            layer("LRN", f"lrn_param {{ local_size: {op.n} alpha: {op.alpha} beta: {op.beta}{region} }}")
        )
    elif op.kind == "drop":
        lines.append(layer("Dropout", f"dropout_param {{ dropout_ratio: {op.ratio} }}"))
    elif op.kind == "relu":
        lines.append(layer("ReLU"))
    elif op.kind == "add":
        lines.append(layer("Eltwise"))
    elif op.kind == "concat":
        lines.append(layer("Concat"))
    if op.numbers.get("relu"):
        lines.append(layer("ReLU", name=f"{op.name}_relu", bottom=here))
    return lines


def parameters(name: str) -> dict[str, np.ndarray]:
    """{"conv1.w": ...} of a net as this project fills it, for peers to copy. BatchNorm's are mean 0, variance
    1."""
    return _parameters(_net(name, 1, False), name)


def _parameters(net: Any, name: str) -> dict[str, np.ndarray]:
    found = {}
    for op in NETS[name].build():
        if op.kind in ("conv", "ip"):
            for key, blob in zip("wb", net.params[op.name], strict=False):
                found[f"{op.name}.{key}"] = blob.cpu_data().copy()
        elif op.kind == "bn":
            for key, blob in zip(("scale", "shift"), net.params[f"{op.name}_scale"], strict=True):
                found[f"{op.name}.{key}"] = blob.cpu_data().copy()
    return found


def _net(name: str, batch: int, train: bool, keep_blobs: bool = True) -> Any:
    from google.protobuf import text_format

    import caffe
    from caffe.proto import caffe_pb2

    caffe.set_random_seed(1)
    message = text_format.Parse(prototxt(name, batch, train), caffe_pb2.NetParameter())
    net = caffe.Net(message, caffe.TRAIN if train else caffe.TEST, keep_blobs=keep_blobs)
    for layer in net.layers:
        if layer.type == "BatchNorm":  # running mean 0, running variance 1
            layer.blobs[1].data[...] = 1
            layer.blobs[2].data[...] = 1
    return net


def inputs(name: str, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels, the same in every process."""
    rng = np.random.default_rng(0)
    net = NETS[name]
    return (
        rng.standard_normal((batch, *net.image)).astype(np.float32),
        rng.integers(0, net.classes, batch).astype(np.float32),
    )


def inference(name: str, batch: int) -> Callable[[], np.ndarray]:
    """A function that runs the net and returns its probabilities."""
    # As in `caffe test`, nobody looks between the layers.
    net = _net(name, batch, False, keep_blobs=False)
    net.blobs["data"].data[...] = inputs(name, batch)[0]

    def run() -> np.ndarray:
        net.run_forward()
        return net.blobs["prob"].cpu_data()

    return run


def training(name: str, batch: int) -> Callable[[], float]:
    """A function that makes one step, forward, backward and update, and returns the loss."""
    from google.protobuf import text_format

    import caffe
    from caffe.proto import caffe_pb2

    caffe.set_random_seed(1)
    recipe = caffe_pb2.SolverParameter(
        base_lr=1e-4,
        lr_policy="fixed",
        momentum=0.9,
        weight_decay=5e-4,
        snapshot_after_train=False,
        max_iter=10**9,
    )
    text_format.Parse(prototxt(name, batch, True), recipe.net_param)
    solver = caffe.get_solver(recipe)
    solver.net.keep_diffs = solver.net.keep_blobs = False  # as `caffe train` does
    images, labels = inputs(name, batch)
    solver.net.blobs["data"].data[...] = images
    solver.net.blobs["label"].data[...] = labels

    def run() -> float:
        solver.step(1)
        return float(solver.smoothed_loss)

    return run
