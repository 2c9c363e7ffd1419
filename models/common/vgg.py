"""The nets of Simonyan and Zisserman: stages of 3 × 3 convolutions, each ended by pooling."""

from __future__ import annotations

from collections.abc import Sequence

from caffe import NetSpec
from caffe import layers as L
from caffe.net_spec import Top

from . import layers as B

_WIDTHS = (64, 128, 256, 512, 512)


def stages(n: NetSpec, data: Top, depths: Sequence[int], first_pad: int = 1) -> Top:
    """conv1_1 to pool5. depths: convolutions in each of the five stages."""
    top = data
    for stage, (width, depth) in enumerate(zip(_WIDTHS, depths, strict=True), 1):
        for index in range(1, depth + 1):
            pad = first_pad if stage == index == 1 else 1
            name = f"{stage}_{index}"
            top = B.conv_relu(n, f"conv{name}", f"relu{name}", top, width, 3, pad=pad)
        top = B.max_pool(n, f"pool{stage}", top, 2, 2)
    return top


def classify(n: NetSpec, top: Top) -> Top:
    """fc6 to fc8."""
    for index in (6, 7):
        top = B.relu(n, f"relu{index}", B.inner_product(n, f"fc{index}", top, 4096))
        n[f"drop{index}"] = L.Dropout(top, dropout_ratio=0.5, in_place=True)
        top = n[f"drop{index}"]
    return B.inner_product(n, "fc8", top, 1000)


def vgg16(n: NetSpec, data: Top) -> Top:
    return classify(n, stages(n, data, (2, 2, 3, 3, 3)))


def vgg19(n: NetSpec, data: Top) -> Top:
    return classify(n, stages(n, data, (2, 2, 4, 4, 4)))
