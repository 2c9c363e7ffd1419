"""What `caffe train` on an LMDB costs beyond the bare net, and how soon a large net is ready.

    scripts/bench training [train|load] [--rounds 15]

train: LeNet, batches of 64 from an LMDB of 28 x 28 images, 50 iterations of the solver a call. Beside the
same solver on an Input layer that keeps one batch. Good: less than 5 % more.
load: CaffeNet's deploy net, 61 million parameters: from the files to the first output, batch 1, with
`import caffe` done and the files in the page cache. Beside a plain read of the weights' file. Good: below
1.5 s.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from google.protobuf import text_format

import caffe
import harness
from caffe.db import open_db
from caffe.proto import caffe_pb2

MODELS = Path(__file__).parent.parent / "models"
ITERATIONS = 50


def write_digits(path: Path, count: int = 10000) -> None:
    rng = np.random.default_rng(0)
    with open_db(str(path), "lmdb", "new") as db:
        transaction = db.transaction()
        for i in range(count):
            datum = caffe_pb2.Datum(channels=1, height=28, width=28, label=i % 10)
            datum.data = rng.integers(0, 256, 784, dtype=np.uint8).tobytes()
            transaction.put(b"%08d" % i, datum.SerializeToString())
        transaction.commit()


def make_solver(source: Path | None) -> Callable[[], Callable[[], object]]:
    """LeNet's solver on an LMDB, or on an Input layer."""

    def make() -> Callable[[], object]:
        net = caffe_pb2.NetParameter()
        text_format.Parse((MODELS / "lenet" / "train_test.prototxt").read_text(), net)
        layers = [layer for layer in net.layer if not layer.include or layer.include[0].phase == caffe.TRAIN]
        data = layers[0]
        if source is not None:
            data.data_param.source = str(source)
        else:
            shapes = "shape { dim: 64 dim: 1 dim: 28 dim: 28 } shape { dim: 64 }"
            text = f'name: "mnist" type: "Input" top: "data" top: "label" input_param {{ {shapes} }}'
            data.Clear()
            text_format.Parse(text, data)
        kept = [caffe_pb2.LayerParameter.FromString(layer.SerializeToString()) for layer in layers]
        del net.layer[:]
        net.layer.extend(kept)
        recipe = caffe_pb2.SolverParameter(
            base_lr=0.01,
            lr_policy="fixed",
            momentum=0.9,
            weight_decay=5e-4,
            max_iter=10**9,
            snapshot_after_train=False,
        )
        recipe.net_param.CopyFrom(net)
        solver = caffe.get_solver(recipe)
        solver.net.keep_diffs = solver.net.keep_blobs = False
        if source is None:
            solver.net.blobs["data"].data[...] = np.random.default_rng(0).random((64, 1, 28, 28))
            solver.net.blobs["label"].data[...] = np.arange(64) % 10
        return lambda: solver.step(ITERATIONS)

    return make


def write_weights(path: Path) -> Path:
    deploy = MODELS / "bvlc_reference_caffenet" / "deploy.prototxt"
    caffe.Net(str(deploy), caffe.TEST).save(str(path))
    return deploy


def make_loading(deploy: Path, weights: Path) -> Callable[[], Callable[[], object]]:
    def load() -> object:
        net = caffe.Net(str(deploy), str(weights), caffe.TEST)
        net.blobs["data"].reshape(1, *net.blobs["data"].shape[1:])
        return net.forward()

    return lambda: load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=["train", "load"])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    caffe.set_logging_disabled(True)
    print(harness.machine())
    with tempfile.TemporaryDirectory() as folder:
        if options.what in (None, "train"):
            source = Path(folder) / "digits"
            write_digits(source)
            candidates = {"LMDB": make_solver(source), "Input": make_solver(None)}
            results = harness.compare(candidates, rounds=options.rounds)
            print(harness.report(f"LeNet, {ITERATIONS} iterations of 64 images", results, baseline="Input"))
        if options.what in (None, "load"):
            weights = Path(folder) / "caffenet.caffemodel"
            deploy = write_weights(weights)
            candidates = {
                "load and run": make_loading(deploy, weights),
                "read the file": lambda: weights.read_bytes,
            }
            results = harness.compare(candidates, rounds=min(options.rounds, 7), warm_up=1)
            print(
                harness.report(
                    "CaffeNet from its files to the first output", results, baseline="read the file"
                )
            )


if __name__ == "__main__":
    main()
