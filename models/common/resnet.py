"""Residual nets for ImageNet: basic blocks (18 layers) and bottlenecks (50, 101, 152 layers)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from caffe import NetSpec
from caffe import layers as L
from caffe.net_spec import Top

from . import layers as B
from . import recipe


def _conv(
    n: NetSpec, block: str, branch: str, bottom: Top, num_output: int, kernel: int, relu: bool, **more: Any
) -> Top:
    name = f"{block}_branch{branch}"
    return B.norm_conv(
        n,
        f"res{name}",
        bottom,
        num_output,
        kernel,
        bn=f"bn{name}",
        scale=f"scale{name}",
        relu_name=f"res{name}_relu" if relu else None,
        **more,
    )


def _bottleneck(n: NetSpec, block: str, bottom: Top, width: int, stride: int) -> Top:
    top = _conv(n, block, "2a", bottom, width, 1, True, stride=stride)
    top = _conv(n, block, "2b", top, width, 3, True, pad=1)
    return _conv(n, block, "2c", top, 4 * width, 1, False)


def _basic(n: NetSpec, block: str, bottom: Top, width: int, stride: int) -> Top:
    top = _conv(n, block, "2a", bottom, width, 3, True, pad=1, stride=stride)
    return _conv(n, block, "2b", top, width, 3, False, pad=1)


def lettered(*depths: int) -> list[list[str]]:
    """The names of the blocks of stages 2 to 5: 2a, 2b, 2c, 3a, ..."""
    return [[f"{stage}{letter}" for letter in "abcdef"[:depth]] for stage, depth in enumerate(depths, 2)]


def numbered(*depths: int) -> list[list[str]]:
    """The same, but of the deep stages 3 and 4: 3a, 3b1, 3b2, ..."""
    stages = lettered(*(min(depth, 3) for depth in depths))
    for stage in (3, 4):
        stages[stage - 2] = [f"{stage}a", *(f"{stage}b{index}" for index in range(1, depths[stage - 2]))]
    return stages


def body(stages: Sequence[Sequence[str]], bottleneck: bool, first_bias: bool = False) -> recipe.Body:
    """stages: the names of the blocks in each. first_bias: conv1 has one, as in one public model."""

    def build(n: NetSpec, data: Top) -> Top:
        first: dict[str, Any] = (
            dict(bias_term=True, param=B.LEARN, bias_filler=B.constant(0)) if first_bias else {}
        )
        top = B.norm_conv(
            n,
            "conv1",
            data,
            64,
            7,
            bn="bn_conv1",
            scale="scale_conv1",
            relu_name="conv1_relu",
            pad=3,
            stride=2,
            **first,
        )
        top = B.max_pool(n, "pool1", top, 3, 2)
        for index, blocks in enumerate(stages):
            width = 64 << index
            for block in blocks:
                begins = block is blocks[0]
                stride = dict(stride=2 if begins and index else 1)
                shortcut = top
                if begins:
                    shortcut = _conv(n, block, "1", top, width * (4 if bottleneck else 1), 1, False, **stride)
                branch = (_bottleneck if bottleneck else _basic)(n, block, top, width, **stride)
                n[f"res{block}"] = L.Eltwise(shortcut, branch)
                top = B.relu(n, f"res{block}_relu", n[f"res{block}"])
        top = B.global_pool(n, "pool5", top)
        return B.inner_product(n, "fc1000", top, 1000, weight_filler=dict(type="msra"))

    return build


def files(name: str, net: str, body: recipe.Body) -> dict[str, Any]:
    # The paper's batch of 256 as 32 at a time.
    return {
        "train_val.prototxt": recipe.classifier(net, body, recipe.imagenet(224, 32, 25), top_5=True),
        "deploy.prototxt": recipe.deploy(net, body, [1, 3, 224, 224]),
        "solver.prototxt": recipe.solver(
            name,
            test_iter=2000,
            test_interval=5000,
            test_initialization=False,
            base_lr=0.1,
            lr_policy="multistep",
            gamma=0.1,
            stepvalue=[150000, 300000, 450000],
            display=20,
            max_iter=600000,
            iter_size=8,
            momentum=0.9,
            weight_decay=0.0001,
            snapshot=10000,
        ),
    }
