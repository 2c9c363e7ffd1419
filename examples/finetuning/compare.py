"""Fine-tuning against training from scratch: the same images, recipe and number of iterations.

    python examples/finetuning/compare.py WEIGHTS [DRAWS]

At the top of a checkout, after `caffe data fashion-mnist examples/finetuning`. WEIGHTS: a LeNet trained on
MNIST. For each of so many draws of 500 images (default 5), trains both ways and prints, as a table, the
mean and the standard deviation of the test accuracy after several numbers of iterations; each draw on stderr.
"""

from __future__ import annotations

import shutil
import sys

import numpy as np
from few_images import few_images

import caffe
from caffe.proto import caffe_pb2
from caffe.upgrade_proto import read_solver_upgraded

FOLDER = "examples/finetuning"
FEW = f"{FOLDER}/few_lmdb"
PER_CLASS = 50
BUDGETS = (25, 50, 100, 200, 400)
TEST_BATCHES = 100  # of 100 images


def recipe(seed: int) -> caffe_pb2.SolverParameter:
    """solver.prototxt without its own tests, snapshots and end."""
    param = read_solver_upgraded(f"{FOLDER}/solver.prototxt")
    param.random_seed = seed
    param.test_initialization = param.snapshot_after_train = False
    param.test_interval = param.max_iter = max(BUDGETS) + 1
    param.display = 0
    return param


def accuracy(solver: caffe.SGDSolver) -> float:
    """Of the parameters as they are now, on all test images."""
    net = solver.test_nets[0]
    net.share_with(solver.net)
    total = 0.0
    for _ in range(TEST_BATCHES):
        total += float(net.forward()["accuracy"])
    return total / TEST_BATCHES


def train(seed: int, weights: str | None) -> list[float]:
    """The accuracy after each of BUDGETS."""
    solver = caffe.get_solver(recipe(seed))
    if weights is not None:
        solver.net.copy_from(weights)
    measured = []
    for budget in BUDGETS:
        solver.step(budget - solver.iter)
        measured.append(accuracy(solver))
    return measured


def main(weights: str, draws: int) -> None:
    ways = {"from scratch": None, "fine-tuned": weights}
    results: dict[str, list[list[float]]] = {way: [] for way in ways}
    for seed in range(draws):
        shutil.rmtree(FEW, ignore_errors=True)
        few_images(f"{FOLDER}/fashion_mnist_train_lmdb", FEW, PER_CLASS, seed)
        for way, start in ways.items():
            results[way].append(train(seed + 1, start))
            measured = zip(BUDGETS, results[way][-1], strict=True)
            print(f"draw {seed}, {way}:", ", ".join(f"{n}: {a:.4f}" for n, a in measured), file=sys.stderr)
    print("| iterations |", " | ".join(ways), "|\n|---|" + "---|" * len(ways))
    for i, budget in enumerate(BUDGETS):
        cells = [np.array(results[way])[:, i] for way in ways]
        texts = [f"{100 * c.mean():.1f} % ± {100 * c.std(ddof=1):.1f}" for c in cells]
        print(f"| {budget} |", " | ".join(texts), "|")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 5)
