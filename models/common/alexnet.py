"""AlexNet in two orders, and the nets that were fine-tuned from it."""

from __future__ import annotations

from typing import Any

from caffe import NetSpec
from caffe import layers as L
from caffe.net_spec import Top

from . import layers as B


def features(n: NetSpec, data: Top, pool_first: bool, bias: float) -> Top:
    """Layers conv1 to drop7.

    pool_first: CaffeNet's order, pooling before the local response normalization; else the paper's.
    bias: of the layers whose rectifiers are to start open.
    """

    def pool_and_norm(index: int, top: Top) -> Top:
        for kind in ("pool", "norm") if pool_first else ("norm", "pool"):
            name = f"{kind}{index}"
            if kind == "pool":
                top = B.max_pool(n, name, top, 3, 2)
            else:
                n[name] = L.LRN(top, local_size=5, alpha=1e-4, beta=0.75)
                top = n[name]
        return top

    def conv(index: int, top: Top, num_output: int, kernel: int, bias: float, **more: Any) -> Top:
        fillers = dict(weight_filler=B.gaussian(0.01), bias_filler=B.constant(bias))
        return B.conv_relu(n, f"conv{index}", f"relu{index}", top, num_output, kernel, **fillers, **more)

    top = pool_and_norm(1, conv(1, data, 96, 11, 0, stride=4))
    top = pool_and_norm(2, conv(2, top, 256, 5, bias, pad=2, group=2))
    top = conv(3, top, 384, 3, 0, pad=1)
    top = conv(4, top, 384, 3, bias, pad=1, group=2)
    top = conv(5, top, 256, 3, bias, pad=1, group=2)
    top = B.max_pool(n, "pool5", top, 3, 2)
    for index in (6, 7):
        fillers = dict(weight_filler=B.gaussian(0.005), bias_filler=B.constant(bias))
        top = B.relu(n, f"relu{index}", B.inner_product(n, f"fc{index}", top, 4096, **fillers))
        n[f"drop{index}"] = L.Dropout(top, dropout_ratio=0.5, in_place=True)
        top = n[f"drop{index}"]
    return top


def scores(n: NetSpec, top: Top, name: str, num_output: int, **more: Any) -> Top:
    """The last inner product."""
    fillers = dict(weight_filler=B.gaussian(0.01), bias_filler=B.constant(0))
    return B.inner_product(n, name, top, num_output, **{**fillers, **more})


def caffenet(n: NetSpec, data: Top) -> Top:
    return scores(n, features(n, data, pool_first=True, bias=1), "fc8", 1000)


def alexnet(n: NetSpec, data: Top) -> Top:
    return scores(n, features(n, data, pool_first=False, bias=0.1), "fc8", 1000)
