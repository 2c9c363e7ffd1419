"""What m.fit costs over `caffe train`: LeNet on MNIST's shapes, the same iterations, interleaved.

    python benchmarks/model_fit.py

Both sides run Solver's loop on nets with equal definitions; the ratio says what the model adds to an
iteration. Time by the clock, and by the processor, which other programs on the machine disturb less.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

import caffe
import harness
from caffe import model as M
from caffe.db import open_db
from caffe.proto import caffe_pb2

ITERATIONS = 20


def write_images(path: str, count: int = 1280) -> None:
    draw = np.random.default_rng(0)
    with open_db(path, "lmdb", "new") as db:
        transaction = db.transaction()
        for i in range(count):
            image = draw.integers(0, 256, (1, 28, 28), np.uint8)
            datum = caffe_pb2.Datum(
                channels=1, height=28, width=28, label=int(draw.integers(10)), data=image.tobytes()
            )
            transaction.put(b"%08d" % i, datum.SerializeToString())
        transaction.commit()


def lenet(source: str) -> M.Model:
    with M.Model("lenet", seed=1) as m:
        x, y = m.data(source, batch_size=64, scale=1 / 255)
        h = m.max_pool(m.conv(x, 20, kernel_size=5), 2)
        h = m.max_pool(m.conv(h, 50, kernel_size=5), 2)
        h = m.relu(m.fc(h, 500))
        loss = m.softmax_loss(m.fc(h, 10, name="score"), y)
    m.minimize(loss, "SGD", base_lr=0.01, momentum=0.9, lr_policy="inv", gamma=1e-4, power=0.75)
    return m


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = str(Path(folder) / "lmdb")
        write_images(source)
        m = lenet(source)
        m.minimizer.param.snapshot_after_train = False
        solver_file = str(Path(folder) / "solver.prototxt")
        m.save(str(Path(folder) / "net.prototxt"), solver=solver_file)
        solver = caffe.get_solver(solver_file)

        def train() -> None:
            solver.param.max_iter += ITERATIONS
            solver.solve()

        candidates = {
            "caffe train": lambda: train,
            "m.fit": lambda: lambda: m.fit(ITERATIONS, progress=False),
        }
        print(harness.machine())
        for what, clock in (("by the clock", time.perf_counter), ("processor time", time.process_time)):
            results = harness.compare(candidates, rounds=25, clock=clock)
            title = f"LeNet, batch 64, {ITERATIONS} iterations, {what}"
            print(harness.report(title, results, baseline="caffe train"))


if __name__ == "__main__":
    main()
