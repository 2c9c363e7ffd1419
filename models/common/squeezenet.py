"""SqueezeNet: fire modules, which squeeze to few channels and expand by 1 × 1 and 3 × 3 kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from caffe import NetSpec
from caffe import layers as L
from caffe.net_spec import Top
from caffe.proto import caffe_pb2

from . import layers as B
from . import recipe

# Channels of the modules fire2 to fire9: squeezed, and of each of the two expansions.
_FIRE = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))


def fire(n: NetSpec, index: int, bottom: Top, squeezed: int, expanded: int) -> Top:
    def conv(name: str, top: Top, num_output: int, kernel: int, **more: Any) -> Top:
        layer, rectifier = f"fire{index}/{name}", f"fire{index}/relu_{name}"
        return B.conv_relu(n, layer, rectifier, top, num_output, kernel, **more)

    top = conv("squeeze1x1", bottom, squeezed, 1)
    n[f"fire{index}/concat"] = L.Concat(
        conv("expand1x1", top, expanded, 1), conv("expand3x3", top, expanded, 3, pad=1)
    )
    return n[f"fire{index}/concat"]


def body(first: tuple[int, int], pools: Sequence[int], last_pad: int) -> recipe.Body:
    """first: channels and kernel of conv1. pools: after which modules besides conv1 (1) there is pooling."""

    def build(n: NetSpec, data: Top) -> Top:
        top = B.conv_relu(n, "conv1", "relu_conv1", data, *first, stride=2)
        top = B.max_pool(n, "pool1", top, 3, 2)
        for index, (squeezed, expanded) in enumerate(_FIRE, 2):
            top = fire(n, index, top, squeezed, expanded)
            if index in pools:
                top = B.max_pool(n, f"pool{index}", top, 3, 2)
        n["drop9"] = L.Dropout(top, dropout_ratio=0.5, in_place=True)
        pad = dict(pad=last_pad) if last_pad else {}
        top = B.conv_relu(
            n, "conv10", "relu_conv10", n["drop9"], 1000, 1, weight_filler=B.gaussian(0.01), **pad
        )
        return B.global_pool(n, "pool10", top)

    return build


def files(name: str, body: recipe.Body) -> dict[str, Any]:
    data = recipe.imagenet(227, 32, 25)
    return {
        "train_val.prototxt": recipe.classifier(name, body, data, top_5=True),
        "deploy.prototxt": recipe.deploy(name, body, [10, 3, 227, 227]),
        "solver.prototxt": _solver(name),
    }


def _solver(name: str) -> caffe_pb2.SolverParameter:
    """The authors': batches of 32 · 32 images, a rate that falls to zero."""
    return recipe.solver(
        name,
        test_iter=2000,
        test_interval=1000,
        test_initialization=False,
        base_lr=0.08,
        lr_policy="poly",
        power=0.5,
        display=40,
        average_loss=40,
        max_iter=85000,
        iter_size=32,
        momentum=0.9,
        weight_decay=0.0002,
        snapshot=1000,
    )
