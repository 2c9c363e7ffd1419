"""A picture of where a trained models/mnist_siamese puts digits in its plane.

    python models/mnist_siamese/plot.py WEIGHTS MNIST_LMDB PICTURE

MNIST_LMDB: single digits, as `caffe data mnist` writes them. Also prints how often the nearest of the other
digits is of the same class. Needs matplotlib.
"""

from __future__ import annotations

import sys
from pathlib import Path

import lmdb
import numpy as np

import caffe
from caffe.proto import caffe_pb2

ITEMS = 5000


def digits(path: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first digits of an LMDB and their classes."""
    images, labels = [], []
    with lmdb.open(path, readonly=True, lock=False) as env, env.begin() as reading:
        for _, value in reading.cursor():
            datum = caffe_pb2.Datum.FromString(value)
            images.append(caffe.io.datum_to_array(datum))
            labels.append(datum.label)
            if len(images) == count:
                break
    return np.array(images), np.array(labels)


def features(weights: str, images: np.ndarray) -> np.ndarray:
    """(N, 2): where the net puts them."""
    net = caffe.Net(str(Path(__file__).with_name("deploy.prototxt")), weights, caffe.TEST)
    net.blobs["data"].reshape(*images.shape)
    net.reshape()
    net.blobs["data"].data[...] = images / 256
    return net.forward()["feat"].copy()


def nearest_agrees(points: np.ndarray, labels: np.ndarray) -> float:
    """How often the nearest other point has the same label."""
    hits = 0
    for index, point in enumerate(points):
        distances = ((points - point) ** 2).sum(axis=1)
        distances[index] = np.inf
        hits += labels[distances.argmin()] == labels[index]
    return hits / len(points)


def main(weights: str, database: str, picture: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    images, labels = digits(database, ITEMS)
    points = features(weights, images)
    print(f"the nearest of the others is of the same class: {nearest_agrees(points, labels):.4f}")
    figure, axes = plt.subplots(figsize=(7, 7), layout="constrained")
    for digit in range(10):
        of_digit = points[labels == digit]
        axes.plot(*of_digit.T, ".", markersize=2, color=f"C{digit}", label=str(digit))
    axes.set_aspect("equal")
    axes.set_title(f"{len(points):,} test digits in the plane")
    axes.legend(markerscale=5)
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(f"usage: {sys.argv[0]} WEIGHTS MNIST_LMDB PICTURE")
    main(*sys.argv[1:])
