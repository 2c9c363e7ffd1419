"""Seven nets, training and inference, beside PyTorch (both memory layouts) and ONNX Runtime.

Candidates run in processes of their own, in turn, with equally many threads; their results are compared
before anything is timed. A training step is forward, backward and update. "of peak" is the share of the
machine's peak: the multiplications and additions of convolutions and inner products, three passes' worth for
a step, over what a loop of fused multiply-adds reached in the same run. "MiB" is the most memory that our
process has had, and that of the PyTorch that needed less.

Good: training at least 1.8 times as fast as the better PyTorch, on no net below 1.2; inference at least 1.2
times ONNX Runtime and twice PyTorch, each as a geometric mean.

    scripts/bench nets [--nets a,b] [--modes train,infer1,infer16] [--rounds 7] [--markdown FILE]
"""

from __future__ import annotations

import argparse
import io
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np

import harness
from peers import fma_peak
from peers.specs import NETS, flops

OURS = "pycaffe"
TRAINING = (OURS, "torch", "torch-channels-last")
INFERENCE = (*TRAINING, "onnxruntime")
# A round of one candidate takes about so long.
ROUND_SECONDS = 0.5


class Candidate:
    """A worker process, ready to run."""

    def __init__(self, name: str, net: str, batch: int, train: bool, threads: int):
        self.name, self.absent = name, ""
        environment = dict(os.environ, CAFFE_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads))
        here = str(Path(__file__).parent)
        environment["PYTHONPATH"] = os.pathsep.join([here, environment.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "peers.worker", name, net, str(batch), "train" if train else "infer"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        head = self._out.read(6)
        if head == b"absent":
            self.absent = self._out.readline().decode().strip()
            return
        if not head:
            raise SystemExit(f"{name} failed on {net}")
        self.first = np.load(io.BytesIO(head + self._read_array()))
        self.calls = 1
        self.seconds: list[float] = []

    def _read_array(self) -> bytes:
        """The rest of an .npy file after its first six bytes."""
        version = self._out.read(2)
        length = self._out.read(2)
        header = self._out.read(int.from_bytes(length, "little"))
        shape = eval(header.decode())["shape"]  # written by our own worker
        return version + length + header + self._out.read(4 * math.prod(shape))

    def run(self, calls: int) -> list[float]:
        self._in.write(f"run {calls}\n".encode())
        self._in.flush()
        return [float(s) for s in self._out.readline().split()]

    def memory(self) -> int:
        """The most bytes that the process has had."""
        self._in.write(b"memory\n")
        self._in.flush()
        return int(self._out.readline())

    def warm_up(self) -> None:
        seconds = min(self.run(2))
        self.calls = max(2, min(200, round(ROUND_SECONDS / seconds)))

    def round(self) -> None:
        self.run(1)  # not timed: the caches are still full of what the candidate before has left there
        self.seconds.append(statistics.median(self.run(self.calls)))

    def close(self) -> None:
        self._in.close()
        self._process.wait()


def measure(
    net: str, mode: str, rounds: int, threads: int
) -> tuple[dict[str, harness.Result], dict[str, int]]:
    """{candidate: seconds}, {candidate: bytes}"""
    train = mode == "train"
    batch = NETS[net].batch if train else int(mode.removeprefix("infer"))
    made = [Candidate(c, net, batch, train, threads) for c in (TRAINING if train else INFERENCE)]
    ready = [c for c in made if not c.absent]
    for c in ready[1:]:
        if not train and np.abs(c.first - ready[0].first).max() > 1e-3:
            raise SystemExit(f"{net}: {c.name} computes something else than {ready[0].name}")
    for c in ready:
        c.warm_up()
    for i in range(rounds):
        for c in ready[i % len(ready) :] + ready[: i % len(ready)]:
            c.round()
    memory = {c.name: c.memory() for c in ready}
    for c in made:
        c.close()
    results = {
        c.name: harness.Result((), c.absent) if c.absent else harness.Result(tuple(c.seconds)) for c in made
    }
    return results, memory


def row(
    net: str, mode: str, results: dict[str, harness.Result], memory: dict[str, int], peak: float
) -> list[str]:
    ours = results[OURS]
    batch = NETS[net].batch if mode == "train" else int(mode.removeprefix("infer"))
    work = flops(NETS[net].build(), (batch, *NETS[net].image)) * (3 if mode == "train" else 1)
    cells = [net, mode if mode != "train" else f"train b{batch}"]
    for name in INFERENCE:
        result = results.get(name)
        cells.append("-" if result is None or result.absent else f"{result.median * 1e3:.2f}")
    cells.append(_times(best_torch(results), ours))
    cells.append(_times(results.get("onnxruntime"), ours))
    cells.append(f"{work / ours.median / peak:.0%}")
    theirs = [size for name, size in memory.items() if name.startswith("torch")]
    cells.append(f"{memory[OURS] / 2**20:.0f}")
    cells.append(f"{min(theirs) / 2**20:.0f}" if theirs else "-")
    return cells


def best_torch(results: dict[str, harness.Result]) -> harness.Result | None:
    present = [r for n, r in results.items() if n.startswith("torch") and not r.absent]
    return min(present, key=lambda r: r.median, default=None)


def _times(peer: harness.Result | None, ours: harness.Result) -> str:
    return "-" if peer is None or peer.absent else f"{peer.ratio(ours):.2f}"


HEAD = ["net", "mode", *(f"{n} ms" for n in INFERENCE), "x torch", "x ORT", "of peak", "MiB", "torch MiB"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--modes", default="train,infer1,infer16")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--markdown", default="", help="also append the table to this file")
    options = parser.parse_args()
    print(harness.machine())
    print(f"threads   {options.threads} for every candidate")
    peak = fma_peak.measure(options.threads)
    print(f"peak      {peak / 1e9:.0f} GFLOP/s, a loop of fused multiply-adds\n", flush=True)
    rows = []
    for mode in options.modes.split(","):
        for net in options.nets.split(","):
            results, memory = measure(net, mode, options.rounds, options.threads)
            rows.append(row(net, mode, results, memory, peak))
            print("  ".join(f"{cell:>14}" for cell in (HEAD if len(rows) == 1 else [])))
            print("  ".join(f"{cell:>14}" for cell in rows[-1]), flush=True)
    for mode in options.modes.split(","):
        for column, peer in ((6, "torch"), (7, "ONNX Runtime")):
            ratios = [float(r[column]) for r in rows if r[1].split()[0] == mode and r[column] != "-"]
            if ratios:
                mean = statistics.geometric_mean(ratios)
                print(f"{mode}: {mean:.2f} x {peer} (geometric mean), the lowest {min(ratios):.2f}")
    if options.markdown:
        with open(options.markdown, "a", encoding="utf-8") as file:
            for cells in (HEAD, ["---"] * len(HEAD), *rows):
                file.write(f"| {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main()
