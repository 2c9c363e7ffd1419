"""A spec as an ONNX model, run by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .caffe_net import inputs, parameters
from .specs import NETS, pooled, shapes


def model(name: str, batch: int) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    net = NETS[name]
    ops, values = net.build(), parameters(name)
    found = shapes(ops, (batch, *net.image))
    nodes: list[Any] = []
    constants: dict[str, np.ndarray] = dict(values)
    alias = {"data": "data"}

    def node(kind: str, ins: list[str], out: str, **attributes: Any) -> None:
        nodes.append(helper.make_node(kind, ins, [out], **attributes))

    for op in ops:
        ins = [alias[x] for x in op.inputs]
        out = f"{op.name}_pre" if op.numbers.get("relu") else op.name
        shape = found[op.inputs[0]]
        alias[op.name] = op.name
        if op.kind == "conv":
            bias = [f"{op.name}.b"] if op.bias else []
            node(
                "Conv",
                [*ins, f"{op.name}.w", *bias],
                out,
                kernel_shape=[op.k] * 2,
                strides=[op.s] * 2,
                pads=[op.p] * 4,
                group=op.g,
            )
        elif op.kind == "bn":
            count = len(values[f"{op.name}.scale"])
            constants[f"{op.name}.mean"] = np.zeros(count, np.float32)
            constants[f"{op.name}.variance"] = np.ones(count, np.float32)
            keys = ("scale", "shift", "mean", "variance")
            node("BatchNormalization", [*ins, *(f"{op.name}.{k}" for k in keys)], out, epsilon=1e-5)
        elif op.kind == "pool" and not op.k:
            node("GlobalAveragePool", ins, out)
        elif op.kind == "pool":
            over = max(0, (pooled(shape[2], op.k, op.s, op.p) - 1) * op.s + op.k - shape[2] - op.p)
            kind = "MaxPool" if op.t == "max" else "AveragePool"
            node(kind, ins, out, kernel_shape=[op.k] * 2, strides=[op.s] * 2, pads=[op.p, op.p, over, over])
        elif op.kind == "lrn" and op.within:
            one, alpha, beta = (f"{op.name}.{k}" for k in ("one", "alpha", "beta"))
            constants |= {
                one: np.float32([1]),
                alpha: np.float32([op.alpha]),
                beta: np.float32([-op.beta]),
            }
            node("Mul", [ins[0], ins[0]], f"{out}_sq")
            pads = [op.n // 2] * 4
            node(
                "AveragePool",
                [f"{out}_sq"],
                f"{out}_av",
                kernel_shape=[op.n] * 2,
                pads=pads,
                count_include_pad=1,
            )
            node("Mul", [f"{out}_av", alpha], f"{out}_al")
            node("Add", [f"{out}_al", one], f"{out}_pl")
            node("Pow", [f"{out}_pl", beta], f"{out}_pw")
            node("Mul", [ins[0], f"{out}_pw"], out)
        elif op.kind == "lrn":
            node("LRN", ins, out, size=op.n, alpha=op.alpha, beta=op.beta, bias=1.0)
        elif op.kind == "ip":
            if len(shape) > 2:
                node("Flatten", ins, f"{out}_flat")
                ins = [f"{out}_flat"]
            node("Gemm", [*ins, f"{op.name}.w", f"{op.name}.b"], out, transB=1)
        elif op.kind == "relu":
            node("Relu", ins, out)
        elif op.kind == "drop":
            alias[op.name] = ins[0]
        elif op.kind == "add":
            node("Add", ins, out)
        else:
            node("Concat", ins, out, axis=1)
        if op.numbers.get("relu"):
            node("Relu", [out], op.name)
    node("Softmax", [alias[ops[-1].name]], "prob", axis=1)
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, found["data"])],
        [helper.make_tensor_value_info("prob", TensorProto.FLOAT, [batch, net.classes])],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return made.SerializeToString()


def inference(name: str, batch: int, threads: int) -> Callable[[], np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model(name, batch), options, providers=["CPUExecutionProvider"])
    images, _ = inputs(name, batch)
    return lambda: session.run(["prob"], {"data": images})[0]
