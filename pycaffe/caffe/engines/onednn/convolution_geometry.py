"""What Convolution and Deconvolution share: the same three primitives, with their parts exchanged.

Activations run in the blocked layout, or channels last where blocks would be mostly padding; an image with
few channels is read as it is. Weights stay in the layout that the forward primitive chose."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...blob import Blob
from ...execution import ExecutionContext
from ...layer import Layer
from .base import OneDNNKernel, first_fast, no_post
from .layouts import AnyDesc, MemoryDesc, blocked, channels_last, dims, plain
from .library import load
from .primitives import (
    CONVOLUTION_DIRECT,
    DST_MD,
    FORWARD_TRAINING,
    SRC_MD,
    WEIGHTS_MD,
    Attributes,
    PrimitiveDesc,
)

# Images with at most so many channels are read in C order: the blocked layout would be mostly padding.
FEW_CHANNELS = 4
# So many times as many multiplications as are asked for are too many: in blocks, LeNet's 20 channels count as
# 32 and its 50 as 64.
WASTE = 1.25


@dataclass(frozen=True)
class Geometry:
    """A convolution as oneDNN sees it: image (N, C, *S) under the window, features (N, K, *O).

    weights: (K, C / group, *kernel), or with a leading axis of groups.
    """

    image: tuple[int, ...]
    features: tuple[int, ...]
    group: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    bias: bool

    @property
    def weights(self) -> tuple[int, ...]:
        k, c = self.features[1] // self.group, self.image[1] // self.group
        return (*((self.group,) if self.group > 1 else ()), k, c, *self.kernel)

    def window(self) -> list[Any]:
        """strides, dilations, padding before and after, as the primitives take them."""
        after = []
        places = zip(
            self.image[2:], self.features[2:], self.kernel, self.stride, self.pad, self.dilation, strict=True
        )
        for size, count, taps, stride, pad, dilation in places:
            extent = dilation * (taps - 1) + 1
            reach = (count - 1) * stride + extent - size - pad
            # What the last window leaves over is padding that nobody sees.
            after.append(pad if 0 <= pad - reach < stride else reach)
        return [dims(self.stride), dims([d - 1 for d in self.dilation]), dims(self.pad), dims(after)]

    def forward(
        self,
        image: Any,
        weights: Any,
        features: Any,
        attributes: Attributes | None = None,
        add_bias: bool = False,
    ) -> PrimitiveDesc:
        """add_bias: with a bias, even if the layer has none."""
        return PrimitiveDesc(
            "convolution_forward",
            FORWARD_TRAINING,
            CONVOLUTION_DIRECT,
            image,
            weights,
            plain(self.features[1:2]) if self.bias or add_bias else None,
            features,
            *self.window(),
            attributes or no_post(),
        )

    def backward_data(self, image: Any, weights: Any, features: Any, hint: PrimitiveDesc) -> PrimitiveDesc:
        window = self.window()
        return PrimitiveDesc(
            "convolution_backward_data",
            CONVOLUTION_DIRECT,
            image,
            weights,
            features,
            *window,
            hint,
            no_post(),
        )

    def backward_weights(
        self, image: Any, weights: Any, features: Any, hint: PrimitiveDesc, bias: bool
    ) -> PrimitiveDesc:
        return PrimitiveDesc(
            "convolution_backward_weights",
            CONVOLUTION_DIRECT,
            image,
            weights,
            plain(self.features[1:2]) if bias else None,
            features,
            *self.window(),
            hint,
            no_post(),
        )

    def layouts(self) -> tuple[MemoryDesc, MemoryDesc]:
        """Of image and features."""
        few = self.image[1] <= FEW_CHANNELS
        block = load().channel_block
        channels = [self.features[1]] if few else [self.image[1], self.features[1]]
        waste = math.prod(-(-n // block) * block / n for n in channels)
        layout = channels_last if waste > WASTE and self.group == 1 else blocked
        # One channel lies first and last at once.
        image = plain(self.image) if few and self.image[1] > 1 else layout(self.image)
        return image, layout(self.features)


@functools.lru_cache(maxsize=4096)
def find_forward(geometry: Geometry) -> PrimitiveDesc | None:
    """The fastest way that oneDNN knows, or None where that is its reference code."""
    image, features = geometry.layouts()
    weights = AnyDesc(geometry.weights)
    any_image, any_features = AnyDesc(geometry.image), AnyDesc(geometry.features)
    return first_fast(
        [
            lambda: geometry.forward(image, weights, features),
            lambda: geometry.forward(image, weights, blocked(geometry.features)),
            lambda: geometry.forward(any_image, weights, features),
            lambda: geometry.forward(any_image, weights, any_features),
        ]
    )


def geometry_of(layer: Any) -> Geometry:
    window = layer.window
    image, features = layer.bottom_shape, layer.top_shape
    if layer.transposed:
        image, features = features, image
    bias = layer.bias_term and not layer.transposed
    return Geometry(
        tuple(image),
        tuple(features),
        layer.group,
        tuple(window.kernel),
        tuple(window.stride),
        tuple(window.pad),
        tuple(window.dilation),
        bias,
    )


class Convolutional(OneDNNKernel):
    @classmethod
    def supports(cls, layer: Layer, bottom: Sequence[Blob]) -> bool:
        convolution: Any = layer
        return (
            super().supports(layer, bottom)
            and convolution.axis == 1
            and 1 <= convolution.spatial_axes <= 3
            and find_forward(geometry_of(layer)) is not None
        )

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return bottom

    def prepare(self, run: ExecutionContext, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.geometry = geometry_of(self.layer)
        found = find_forward(self.geometry)
        assert found is not None  # supports asked
        self.found = found
        self.image, self.features = found.desc(SRC_MD), found.desc(DST_MD)
        self.weights = found.desc(WEIGHTS_MD)

    def data_primitive(self) -> PrimitiveDesc:
        """The features' way back to the image: Convolution's backward, Deconvolution's forward."""
        geometry, weights = self.geometry, AnyDesc(self.geometry.weights)
        found = first_fast(
            [
                lambda: geometry.backward_data(self.image, self.weights, self.features, self.found),
                lambda: geometry.backward_data(self.image, weights, self.features, self.found),
                lambda: geometry.backward_data(AnyDesc(geometry.image), weights, self.features, self.found),
            ]
        )
        return found or geometry.backward_data(
            AnyDesc(geometry.image), weights, AnyDesc(geometry.features), self.found
        )

    def weights_primitive(self, bias: bool) -> PrimitiveDesc:
        geometry, weights = self.geometry, AnyDesc(self.geometry.weights)
        found = first_fast(
            [
                lambda: geometry.backward_weights(self.image, self.weights, self.features, self.found, bias),
                lambda: geometry.backward_weights(self.image, weights, self.features, self.found, bias),
                lambda: geometry.backward_weights(
                    AnyDesc(geometry.image), weights, self.features, self.found, bias
                ),
            ]
        )
        return found or geometry.backward_weights(
            AnyDesc(geometry.image), weights, AnyDesc(geometry.features), self.found, bias
        )
