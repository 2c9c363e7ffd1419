"""A picture of digits and of what a trained models/mnist_autoencoder makes of them.

    python models/mnist_autoencoder/plot.py WEIGHTS MNIST_LMDB PICTURE

Above, the first digit of each class; below, what comes back from 30 numbers. Also prints the mean square
error of a pixel over 5,000 digits.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cv2
import lmdb
import numpy as np

import caffe
from caffe.proto import caffe_pb2

ITEMS = 5000


def digits(path: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first digits of an LMDB, from 0 to 1, and their classes."""
    images, labels = [], []
    with lmdb.open(path, readonly=True, lock=False) as env, env.begin() as reading:
        for _, value in reading.cursor():
            datum = caffe_pb2.Datum.FromString(value)
            images.append(caffe.io.datum_to_array(datum) / np.float32(255))
            labels.append(datum.label)
            if len(images) == count:
                break
    return np.array(images), np.array(labels)


def rebuilt(weights: str, images: np.ndarray) -> np.ndarray:
    """What the net gives for the images, in their shape."""
    net = caffe.Net(str(Path(__file__).with_name("deploy.prototxt")), weights, caffe.TEST)
    net.blobs["data"].reshape(*images.shape)
    net.reshape()
    net.blobs["data"].data[...] = images
    return net.forward()["decode1neuron"].reshape(images.shape)


def main(weights: str, database: str, picture: str) -> None:
    images, labels = digits(database, ITEMS)
    results = rebuilt(weights, images)
    print(f"mean square error of a pixel: {((results - images) ** 2).mean():.5f}")
    chosen = [int(np.flatnonzero(labels == digit)[0]) for digit in range(10)]
    rows = [np.concatenate([batch[index, 0] for index in chosen], axis=1) for batch in (images, results)]
    paper = (255 * (1 - np.concatenate(rows))).round().astype(np.uint8)
    cv2.imwrite(picture, cv2.resize(paper, None, fx=3, fy=3, interpolation=cv2.INTER_NEAREST))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(f"usage: {sys.argv[0]} WEIGHTS MNIST_LMDB PICTURE")
    main(*sys.argv[1:])
