"""The GPU engine beside PyTorch with cuDNN, in one run on one GPU: training and inference of four nets.

First TensorFloat-32 is off on both sides, then, in a process of its own, on. Batches lie on the device
already; a training step is forward, backward, update, and the loss read back. Then, for the first net, the
share of the time that this project's own kernels take (the rest is cuBLAS's and gaps), and the speed of
memory-bound kernels against a copy within the device.

Good: training at least as fast as PyTorch eager on each net.

    scripts/bench gpu [--nets alexnet,googlenet,resnet50,mobilenet] [--modes train,infer] [--rounds 7]
    [--seconds 400]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import harness

BATCHES = {"alexnet": 256, "googlenet": 128, "resnet50": 64, "mobilenet": 128}
COPIED = 1 << 26  # floats


def ours(name: str, mode: str) -> Callable[[], Callable[[], object]]:
    def build() -> Callable[[], object]:
        import caffe
        from peers import caffe_net

        caffe.set_mode_gpu()
        return (caffe_net.training if mode == "train" else caffe_net.inference)(name, BATCHES[name])

    return build


def torchs(name: str, mode: str, channels_last: bool) -> Callable[[], Callable[[], object]]:
    def build() -> Callable[[], object]:
        import torch

        from peers import torch_net

        tf32 = os.environ.get("CAFFE_TF32") == "1"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = True
        net = torch_net.TorchNet(name, channels_last, mode == "train")
        for key, value in net.params.items():
            net.params[key] = value.detach().cuda().requires_grad_(mode == "train")
        net.running = {key: (mean.cuda(), variance.cuda()) for key, (mean, variance) in net.running.items()}
        x, labels = (t.cuda() for t in torch_net._images(name, BATCHES[name], net))
        x = x.contiguous(memory_format=net.format)
        optimizer = None
        if mode == "train":
            optimizer = torch.optim.SGD(net.params.values(), lr=1e-4, momentum=0.9, weight_decay=5e-4)

        def step() -> float:
            assert optimizer is not None
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x), labels)
            loss.backward()
            optimizer.step()
            return loss.item()

        def forward() -> object:
            with torch.inference_mode():
                return net(x).softmax(1).cpu()

        return step if optimizer is not None else forward

    return build


def one_setting(nets: list[str], modes: list[str], rounds: int, deadline: float) -> None:
    title = "TF32" if os.environ.get("CAFFE_TF32") == "1" else "float32"
    for name in nets:
        for mode in modes:
            if time.monotonic() > deadline:
                print(f"{name}, {mode}, {title}: left out, the time is over")
                continue
            candidates = {
                "pycaffe": ours(name, mode),
                "torch": torchs(name, mode, False),
                "torch-channels-last": torchs(name, mode, True),
            }
            results = harness.compare(candidates, rounds=rounds)
            print(
                harness.report(f"{name}, batch {BATCHES[name]}, {mode}, {title}", results, baseline="torch"),
                flush=True,
            )


def kernel_share(name: str) -> None:
    """Where a training step's time goes, by kernel."""
    from caffe.engines.cuda import compiler, driver

    step = ours(name, "train")()
    step()
    device, times = driver.device(), []
    launch = compiler.Function._launch

    def timed(self: Any, *arguments: Any) -> None:
        before, after = device.driver.Event(), device.driver.Event()
        before.record(device.stream)
        launch(self, *arguments)
        after.record(device.stream)
        times.append((self.name, before, after))

    start = time.perf_counter()
    step()
    device.synchronize()
    whole = 1e3 * (time.perf_counter() - start)
    compiler.Function._launch = timed  # type: ignore[method-assign]
    try:
        step()
        device.synchronize()
    finally:
        compiler.Function._launch = launch  # type: ignore[method-assign]
    share: Counter[str] = Counter()
    for kernel, before, after in times:
        share[kernel] += after.time_since(before)
    print(
        f"{name}, a training step of {whole:.2f} ms: own kernels {share.total():.2f} ms in {len(times)} "
        "launches"
    )
    for kernel, ms in share.most_common(10):
        print(f"  {kernel:20} {ms:8.3f} ms {100 * ms / whole:5.1f} %")


def memory_speed() -> None:
    """GB/s of kernels that only move numbers, and of a copy within the device."""
    from caffe.engines.cuda import base, compiler, driver, place

    device = driver.device()
    a, b, c = (place.Buffer(4 * COPIED) for _ in range(3))
    x, y, z = a.address, b.address, c.address
    for address in (x, y, z):
        place.clear(address, COPIED)
    relu, math = compiler.module("relu"), base.arithmetic()
    cases: dict[str, tuple[int, Callable[[], None]]] = {
        "copy": (2, lambda: place.copy(x, y, COPIED)),
        "relu forward": (2, lambda: relu.forward.elements(COPIED, x, y, 0.0)),
        "relu backward": (3, lambda: relu.backward.elements(COPIED, x, y, y, z, 0.0)),
        "add": (3, lambda: math.add.elements(COPIED, x, y, z)),
        "bias gradient": (1, lambda: math.block_total.rows(64, COPIED // 64, x, y, 64, COPIED // 4096, 0.0)),
    }
    for name, (arrays, run) in cases.items():
        run()
        seconds = []
        for _ in range(10):
            before, after = device.driver.Event(), device.driver.Event()
            before.record(device.stream)
            run()
            after.record(device.stream)
            after.synchronize()
            seconds.append(1e-3 * after.time_since(before))
        print(f"  {name:16} {4e-9 * arrays * COPIED / float(np.median(seconds)):8.1f} GB/s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nets", default=",".join(BATCHES))
    parser.add_argument("--modes", default="train,infer")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=400, help="nothing new is begun after so long")
    parser.add_argument("--one-setting", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    nets, modes = arguments.nets.split(","), arguments.modes.split(",")
    deadline = time.monotonic() + arguments.seconds
    if arguments.one_setting:
        one_setting(nets, modes, arguments.rounds, deadline)
        return
    from caffe import kernels

    reason = kernels.gpu_absence()
    if reason:
        sys.exit(f"nothing to measure: {reason}")
    print(harness.machine())
    print(kernels.engine_description("cuda"), flush=True)
    for tf32 in ("0", "1"):
        left = max(deadline - time.monotonic(), 1)
        command = [
            sys.executable,
            __file__,
            *sys.argv[1:],
            "--one-setting",
            f"--seconds={left / 2 if tf32 == '0' else left}",
        ]
        subprocess.run(command, check=True, env={**os.environ, "CAFFE_TF32": tf32})
    import caffe

    caffe.set_mode_gpu()
    kernel_share(nets[0])
    memory_speed()


if __name__ == "__main__":
    main()
