"""The GPU engine beside PyTorch with cuDNN, in one run on one GPU: training and inference of four nets.

Each with TensorFloat-32 off on both sides, then on. Batches lie on the device already; a training step is
forward, backward, update, and the loss read back. Then, for the first net, the share of the time that this
project's own kernels take (the rest is the libraries' and gaps), and the speed of memory-bound kernels
against a copy within the device.

Measuring is done in processes of its own. Where something fails, it says so in the table, and the rest goes
on in a new process. What is known so far is printed as it comes, and the one table at the end in any case:
also after Ctrl-C, or SIGTERM. Exits 1 when anything failed.

Good: training at least as fast as the better PyTorch on each net ("x torch" at least 1).

    scripts/bench gpu [--nets alexnet,googlenet,resnet50,mobilenet] [--modes train,infer] [--rounds 7]
    [--seconds 330] [--small]
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from functools import cache
from typing import Any

import numpy as np

import harness
from peers import caffe_net

BATCHES = {"alexnet": 256, "googlenet": 128, "resnet50": 64, "mobilenet": 128}
OURS, TORCH, CHANNELS_LAST = "pycaffe", "torch", "torch-channels-last"
CANDIDATES = (OURS, TORCH, CHANNELS_LAST)
MATH = {"0": "float32", "1": "TF32"}
# What may differ between two programs' probabilities.
TOLERANCE = {"0": 1e-3, "1": 2e-2}
# Nothing takes longer by itself; what does is stopped.
PATIENCE = 100
MEMORY = "memory-bound kernels"

Item = tuple[str, str, str]  # net, mode, CAFFE_TF32


# -- the measuring process: one item after another, each answered by a line of JSON --------------


class Measuring:
    """small: a dry run, with a batch of one and short arrays."""

    def __init__(self, rounds: int, small: bool):
        self.rounds, self.small = rounds, small

    def batch(self, net: str) -> int:
        return 1 if self.small else BATCHES.get(net, 64)

    def ours(self, net: str, mode: str) -> Callable[[], object]:
        make = caffe_net.training if mode == "train" else caffe_net.inference
        return make(net, self.batch(net))

    def torchs(self, net: str, mode: str, channels_last: bool) -> Callable[[], object]:
        import torch

        from peers import torch_net

        tf32 = os.environ["CAFFE_TF32"] == "1"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = True
        model = torch_net.TorchNet(net, channels_last, mode == "train")
        for key, value in model.params.items():
            model.params[key] = value.detach().cuda().requires_grad_(mode == "train")
        model.running = {key: (mean.cuda(), var.cuda()) for key, (mean, var) in model.running.items()}
        x, labels = (t.cuda() for t in torch_net._images(net, self.batch(net), model))
        x = x.contiguous(memory_format=model.format)
        optimizer = None
        if mode == "train":
            optimizer = torch.optim.SGD(model.params.values(), lr=1e-4, momentum=0.9, weight_decay=5e-4)

        def step() -> float:
            assert optimizer is not None
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            return loss.item()

        def forward() -> object:
            with torch.inference_mode():
                return model(x).softmax(1).cpu().numpy()

        return step if optimizer is not None else forward

    def item(self, net: str, mode: str) -> dict[str, Any]:
        """Seconds of each candidate, or why it is absent."""
        first: dict[str, Any] = {}

        def candidate(name: str) -> Callable[[], Callable[[], object]]:
            def make() -> Callable[[], object]:
                if name == OURS:
                    run = self.ours(net, mode)
                    first[name] = np.asarray(run())
                    return run
                try:
                    run = self.torchs(net, mode, name == CHANNELS_LAST)
                    first[name] = np.asarray(run())
                except Exception as error:  # of whatever kind: this project is measured all the same
                    raise ImportError(f"{type(error).__name__}: {error}") from error
                return run

            return make

        results = harness.compare({name: candidate(name) for name in CANDIDATES}, rounds=self.rounds)
        for name, value in first.items():
            if mode == "infer":
                difference = float(np.abs(value - first[OURS]).max())
            else:  # Dropout's masks are not the same; but a loss is a number
                difference = 0.0 if np.isfinite(value).all() else np.inf
            if not difference <= TOLERANCE[os.environ["CAFFE_TF32"]]:
                raise ValueError(f"{name} computes something else than {OURS}: {value} and {first[OURS]}")
        return {name: [r.absent, list(r.seconds)] for name, r in results.items()}

    def kernel_share(self, net: str) -> list[str]:
        """Where a training step's time goes, by kernel."""
        from caffe.engines.cuda import compiler, driver

        step = self.ours(net, "train")
        step()
        device, times = driver.device(), []
        launch = compiler.Function._launch

        def timed(function: Any, *arguments: Any) -> None:
            before, after = device.driver.Event(), device.driver.Event()
            before.record(device.stream)
            launch(function, *arguments)
            after.record(device.stream)
            times.append((function.name, before, after))

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
        for name, before, after in times:
            share[name] += after.time_since(before)
        lines = [
            f"{net}, a training step of {whole:.2f} ms: own kernels {share.total():.2f} ms in "
            f"{len(times)} launches"
        ]
        lines += [f"  {n:20} {ms:8.3f} ms {100 * ms / whole:5.1f} %" for n, ms in share.most_common(10)]
        return lines

    def memory_speed(self) -> list[str]:
        """GB/s of kernels that only move numbers, and of a copy within the device."""
        from caffe.engines.cuda import base, compiler, driver, place

        count = 1 << 14 if self.small else 1 << 26
        device = driver.device()
        a, b, c = (place.Buffer(4 * count) for _ in range(3))
        x, y, z = a.address, b.address, c.address
        for address in (x, y, z):
            place.clear(address, count)
        relu, math = compiler.module("relu"), base.arithmetic()
        cases: dict[str, tuple[int, Callable[[], None]]] = {
            "copy": (2, lambda: place.copy(x, y, count)),
            "relu forward": (2, lambda: relu.forward.elements(count, x, y, 0.0)),
            "relu backward": (3, lambda: relu.backward.elements(count, x, y, y, z, 0.0)),
            "add": (3, lambda: math.add.elements(count, x, y, z)),
            "bias gradient": (
                1,
                lambda: math.block_total.rows(64, count // 64, x, y, 64, count // 4096, 0.0),
            ),
        }
        lines = []
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
            lines.append(f"  {name:16} {4e-9 * arrays * count / float(np.median(seconds)):8.1f} GB/s")
        return lines

    def serve(self, items: list[Item]) -> None:
        """Ends at the first failure: what it has done to the device is not known."""
        import caffe
        from caffe import kernels

        caffe.set_mode_gpu()
        ready = kernels.engine_ready("cudnn")
        words = kernels.engine_description("cudnn") if ready else f"no {kernels.engine_reason('cudnn')}"
        print(f"{MATH[os.environ['CAFFE_TF32']]}, {words}", flush=True)
        # Both PyTorches and both modes want the same.
        caffe_net.parameters = cache(caffe_net.parameters)
        caffe_net.inputs = cache(caffe_net.inputs)
        for net, mode, _ in items:
            try:
                if mode == "kernels":
                    answer: Any = self.memory_speed() if net == MEMORY else self.kernel_share(net)
                else:
                    answer = self.item(net, mode)
            except Exception as error:
                print(json.dumps({"failed": f"{type(error).__name__}: {error}"}), flush=True)
                sys.exit(1)
            print(json.dumps({"answer": answer}), flush=True)
            self._forget()

    def _forget(self) -> None:
        """Give device memory back: the two sides do not share what they keep."""
        from caffe.engines.cuda import place

        gc.collect()
        place.POOL.release()
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()


# -- the process that asks and prints -------------------------------------------------------------


class Table:
    """Rows as they come. failed: has anything?"""

    HEAD = ("net", "mode", "math", "batch", *(f"{name} ms" for name in CANDIDATES), "images/s", "x torch")

    def __init__(self) -> None:
        self.rows: list[list[str]] = []
        self.failed = False

    def add(self, item: Item, batch: int, answer: dict[str, Any]) -> None:
        net, mode, tf32 = item
        results = {n: harness.Result(tuple(seconds), absent) for n, (absent, seconds) in answer.items()}
        cells = ["-" if r.absent else f"{1e3 * r.median:.2f}" for r in results.values()]
        ours = results[OURS]
        peers = [r for n, r in results.items() if n != OURS and not r.absent]
        best = min(peers, key=lambda r: r.median, default=None)
        ratio = "-" if best is None else f"{best.ratio(ours):.2f}"
        cells += [f"{batch / ours.median:.0f}", ratio]
        self._append([net, mode, MATH[tf32], str(batch), *cells])
        for name, result in results.items():
            if result.absent:
                print(f"    {name} is absent: {result.absent}", flush=True)

    def fail(self, item: Item, reason: str) -> None:
        self.failed = True
        net, mode, tf32 = item
        self._append([net, mode, MATH[tf32], f"failed: {reason}"])

    def leave_out(self, item: Item) -> None:
        net, mode, tf32 = item
        self._append([net, mode, MATH[tf32], "left out, the time is over"])

    def _append(self, cells: list[str]) -> None:
        self.rows.append([cell.replace("\n", " ").replace("|", "/") for cell in cells])
        print("  ".join(f"{cell:>10}" for cell in self.rows[-1]), flush=True)

    def __str__(self) -> str:
        lines = [list(self.HEAD), ["---"] * len(self.HEAD), *self.rows]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def answers(items: list[Item], options: argparse.Namespace) -> Generator[dict[str, Any], None, None]:
    """What one measuring process says to each item, until it ends."""
    command = [sys.executable, __file__, "--serve", json.dumps(items), f"--rounds={options.rounds}"]
    command += ["--small"] if options.small else []
    environment = {**os.environ, "CAFFE_TF32": items[0][2]}
    environment.pop("CAFFE_ENGINE", None)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        while True:
            watch = threading.Timer(PATIENCE, process.kill)
            watch.daemon = True
            watch.start()
            try:
                line = process.stdout.readline()
            finally:
                watch.cancel()
            if not line:
                return
            if line.startswith("{"):
                yield json.loads(line)
            else:
                print(line, end="", flush=True)
    finally:
        process.kill()
        process.wait()


def measure(items: list[Item], table: Table, options: argparse.Namespace, deadline: float) -> None:
    """Items in order; a new measuring process where TF32 changes, and after a failure."""
    measuring = Measuring(options.rounds, options.small)
    while items:
        tf32 = items[0][2]
        together = list(itertools.takewhile(lambda item: item[2] == tf32, items))  # noqa: B023
        given = answers(together, options)
        for item in together:
            if time.monotonic() > deadline:
                for left in items:
                    table.leave_out(left)
                given.close()
                return
            silence = f"its process ended, or said nothing for {PATIENCE} s"
            answer: dict[str, Any] = next(given, {"failed": silence})
            items = items[1:]
            if "failed" in answer:
                table.fail(item, answer["failed"])
                break
            if item[1] == "kernels":
                print(*answer["answer"], sep="\n", flush=True)
            else:
                table.add(item, measuring.batch(item[0]), answer["answer"])
        given.close()


def plan(nets: list[str], modes: list[str]) -> list[Item]:
    """What matters most first: there may not be time for all."""
    items = [(net, mode, tf32) for mode in modes for tf32 in MATH for net in nets]
    at = len(nets) * len(MATH)  # after the first mode
    return [*items[:at], (nets[0], "kernels", "0"), (MEMORY, "kernels", "0"), *items[at:]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nets", default=",".join(BATCHES))
    parser.add_argument("--modes", default="train,infer")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=330, help="nothing new is begun after so long")
    parser.add_argument("--small", action="store_true", help="a dry run: a batch of one, short arrays")
    parser.add_argument("--serve", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        Measuring(options.rounds, options.small).serve(options.serve)
        return
    deadline = time.monotonic() + options.seconds
    from caffe import kernels

    reason = kernels.gpu_absence()
    if reason:
        sys.exit(f"nothing to measure: {reason}")
    print(harness.machine())
    print(kernels.engine_description("cuda"))
    print(flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    table = Table()
    try:
        measure(plan(options.nets.split(","), options.modes.split(",")), table, options, deadline)
    except KeyboardInterrupt:
        table.failed = True
        print("stopped from outside", flush=True)
    print(f"\n{table}", flush=True)
    sys.exit(1 if table.failed else 0)


if __name__ == "__main__":
    main()
