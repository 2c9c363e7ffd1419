"""How long each reference model takes for one item, forward: the last column of docs/models.md.

    scripts/bench models [NAME...] [--rounds 7]

One process for each model, deploy net, batch 1, whole passes without keeping blobs, random inputs. Prints
milliseconds: the median, and the fastest.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

import numpy as np

import harness


def measure(name: str, rounds: int) -> list[float]:
    import caffe

    caffe.set_logging_disabled(True)
    net = caffe.Net(str(caffe.models.path(name, "deploy.prototxt")), caffe.TEST, keep_blobs=False)
    rng = np.random.default_rng(0)
    for top in net.inputs:
        blob = net.blobs[top]
        if top == "data" and name != "char_rnn":
            blob.reshape(1, *blob.shape[1:])
        blob.data[...] = 0 if name == "char_rnn" else rng.uniform(0, 1, blob.shape)
    seconds = []
    for _ in range(2 + rounds):
        begun = time.perf_counter()
        net.run_forward()
        net.blobs[net.outputs[0]].cpu_data()
        seconds.append(time.perf_counter() - begun)
    return seconds[2:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(*measure(options.one, options.rounds))
        return
    print(harness.machine(), "\n")
    from caffe import models

    for name in options.names or models.list():
        command = [sys.executable, __file__, "--one", name, "--rounds", str(options.rounds)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        milliseconds = [1e3 * float(word) for word in done.stdout.split()]
        print(f"{name:30} {statistics.median(milliseconds):10.3g} {min(milliseconds):10.3g}", flush=True)


if __name__ == "__main__":
    main()
