"""Caffe's nets for CIFAR-10: three convolutions with pooling."""

from __future__ import annotations

from typing import Any

from caffe import NetSpec
from caffe import layers as L
from caffe.net_spec import Top
from caffe.proto import caffe_pb2

from . import layers as B
from . import recipe

FOLDER = "examples/cifar10"
STDS = (0.0001, 0.01, 0.01)  # of the initial weights of the three convolutions
WIDTHS = (32, 32, 64)


def data() -> tuple[recipe.Data, recipe.Data]:
    mean = f"{FOLDER}/mean.binaryproto"
    train, test = (
        recipe.lmdb(f"{FOLDER}/cifar10_{part}_lmdb", 100, mean_file=mean) for part in ("train", "test")
    )
    return train, test


def conv(n: NetSpec, index: int, bottom: Top, std_of: tuple[float, ...] = STDS, **more: Any) -> Top:
    filler = B.gaussian(std_of[index - 1])
    return B.conv(n, f"conv{index}", bottom, WIDTHS[index - 1], 5, pad=2, weight_filler=filler, **more)


def within_channel_norm(n: NetSpec, name: str, bottom: Top) -> Top:
    n[name] = L.LRN(bottom, local_size=3, alpha=5e-5, beta=0.75, norm_region="WITHIN_CHANNEL")
    return n[name]


def sigmoid(n: NetSpec, index: int, bottom: Top) -> Top:
    n[f"Sigmoid{index}"] = L.Sigmoid(bottom)
    return n[f"Sigmoid{index}"]


def files(name: str, net: str, body: recipe.Body, **solver: Any) -> dict[str, Any]:
    return {
        "train_val.prototxt": recipe.classifier(net, body, data(), layer="cifar"),
        "deploy.prototxt": recipe.deploy(net, body, [1, 3, 32, 32]),
        "solver.prototxt": _solver(name, **solver),
    }


def _solver(name: str, **fields: Any) -> caffe_pb2.SolverParameter:
    usual = dict(test_iter=100, base_lr=0.001, momentum=0.9)
    return recipe.solver(name, **{**usual, **fields})
