"""One candidate in a process of its own, driven by lines: "run N" is answered by the seconds of N calls each,
"memory" by the most bytes that the process has had.

Peers bring thread pools of their own, which spin for a while after they have worked; in one process they
would take the cores from each other. Usage: python -m peers.worker CANDIDATE NET BATCH train|infer"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def make(candidate: str, net: str, batch: int, train: bool, threads: int) -> Callable[[], Any]:
    if candidate.startswith("torch"):
        import torch

        from . import torch_net

        torch.set_num_threads(threads)
        last = candidate == "torch-channels-last"
        return torch_net.training(net, batch, last) if train else torch_net.inference(net, batch, last)
    if candidate == "onnxruntime":
        from . import onnx_net

        return onnx_net.inference(net, batch, threads)
    from . import caffe_net

    return caffe_net.training(net, batch) if train else caffe_net.inference(net, batch)


def main() -> None:
    candidate, net, batch, mode = sys.argv[1:5]
    threads = int(os.environ["CAFFE_NUM_THREADS"])
    try:
        run = make(candidate, net, int(batch), mode == "train", threads)
    except ImportError as error:
        print(f"absent {error}", flush=True)
        return
    first = run()
    np.save(sys.stdout.buffer, np.asarray(first, np.float32))
    sys.stdout.buffer.flush()
    for line in sys.stdin:
        if line.startswith("memory"):
            print(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)
            continue
        calls = int(line.split()[1])
        seconds = []
        for _ in range(calls):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
        print(*seconds, flush=True)


if __name__ == "__main__":
    main()
