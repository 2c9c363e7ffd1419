"""One update of 60 million parameters: SGD with momentum and L2, two parameters with two lr_mults.

What it costs is memory traffic: data, gradient and history are read and written once, 1.4 GB, which a
plain copy of as many bytes (the baseline) shows. Good: at most twice the copy; 60 ms on two fast cores.

    scripts/bench solver_update [type ...]      default: SGD
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from google.protobuf import text_format

import caffe
import harness
from caffe.execution import cpu_threads
from caffe.proto import caffe_pb2

SIZE = 30_000_000  # of each of the two parameters
BASELINE = "copy of three arrays"

NET = """
layer {{ name: "a" type: "Parameter" top: "a" param {{ lr_mult: 1 decay_mult: 1 }}
         parameter_param {{ shape {{ dim: {n} }} }} }}
layer {{ name: "b" type: "Parameter" top: "b" param {{ lr_mult: 2 decay_mult: 0.5 }}
         parameter_param {{ shape {{ dim: {n} }} }} }}
layer {{ name: "l" type: "Eltwise" bottom: "a" bottom: "b" top: "l" }}
layer {{ name: "loss" type: "Reduction" bottom: "l" top: "loss" loss_weight: 1 }}
"""
FIELDS = {
    "AdaGrad": "delta: 1e-3",
    "RMSProp": "delta: 1e-3",
    "AdaDelta": "momentum: 0.9 delta: 1e-3",
}


def make_solver(type: str, threads: int, size: int = SIZE) -> Callable[[], object]:
    fields = FIELDS.get(type, "momentum: 0.9")
    param = text_format.Parse(
        f'type: "{type}" base_lr: 0.01 lr_policy: "fixed" weight_decay: 5e-4 {fields}',
        caffe_pb2.SolverParameter(),
    )
    text_format.Parse(NET.format(n=size), param.net_param)
    solver = caffe.get_solver(param)
    solver.net.run.threads = threads
    for i, p in enumerate(solver.net.learnable):
        rng = np.random.default_rng(i)
        p.blob.overwrite_cpu_data()[...] = rng.standard_normal(size, dtype=np.float32)
        p.blob.overwrite_cpu_diff()[...] = rng.standard_normal(size, dtype=np.float32)
    return solver.apply_update


def make_copy() -> Callable[[], object]:
    source, target = (np.ones(6 * SIZE, np.float32) for _ in range(2))
    return lambda: np.copyto(target, source)


def make_torch(threads: int) -> Callable[[], object]:
    import torch

    torch.set_num_threads(threads)
    tensors = [torch.nn.Parameter(torch.randn(SIZE)) for _ in range(2)]
    for tensor in tensors:
        tensor.grad = torch.randn(SIZE)
    groups = [{"params": [t], "lr": lr} for t, lr in zip(tensors, (0.01, 0.02), strict=True)]
    return torch.optim.SGD(groups, momentum=0.9, weight_decay=5e-4).step


def main() -> None:
    threads = cpu_threads()
    candidates: dict[str, Callable[[], Callable[[], object]]] = {BASELINE: make_copy}
    for type in sys.argv[1:] or ["SGD"]:
        for count in sorted({1, threads}):
            candidates[f"{type}, {count} thread(s)"] = lambda type=type, count=count: make_solver(type, count)
    candidates[f"torch SGD, {threads} thread(s)"] = lambda: make_torch(threads)
    print(harness.machine())
    results = harness.compare(candidates, rounds=9)
    print(harness.report("Update of 60 million parameters", results, baseline=BASELINE))


if __name__ == "__main__":
    main()
