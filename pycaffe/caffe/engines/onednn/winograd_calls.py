"""Passes of a convolution through Winograd's transforms (winograd.py), made of oneDNN's primitives.

Each part of the images goes through: copy tiles into planes, one for each place in a tile; transform the
planes; a product for each place; transform; copy the planes into the blob. Planes are scratch memory of the
net, two at a time, and so are the transformed weights of a net that trains: a net that tests keeps them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...execution import ExecutionContext
from .base import Gradient
from .layouts import plain, strided
from .place import RECORDER, Operand
from .primitives import (
    BIAS,
    BINARY_ADD,
    RELU,
    Buffer,
    Memory,
    post_operand,
)
from .winograd import OUT, PLACES, TAPS, Tiling
from .winograd_primitives import TilePrimitives, Weights, constant, transforms, version_of


class _Pass(TilePrimitives):
    """What is called for a pass on one bottom and its top; like a Call, it may be repeated."""

    arguments: list[Any]

    def __call__(self) -> None:
        for argument in self.arguments:
            argument.bind()
        if RECORDER.events is not None:
            RECORDER.events.append(self)
        self.primitive()

    def primitive(self) -> None:
        """Do it, with the arguments where they were bound."""
        raise NotImplementedError


def _bound(*arguments: Any) -> list[Any]:
    return [a for a in arguments if a is not None and not isinstance(a, Memory)]


class Forward(_Pass):
    """target = source * weights + bias + other, then a ReLU with that slope; the last three where there are
    any."""

    def __init__(
        self,
        run: ExecutionContext,
        tiling: Tiling,
        weights: Weights,
        source: Operand,
        target: Operand,
        bias: Operand | Memory | None = None,
        other: Operand | None = None,
        slope: float | None = None,
    ):
        super().__init__(run, tiling)
        self.arguments = _bound(source, weights.argument, bias, other, target)
        self._weights, self._bias, self._bias_known = weights, bias, object()
        self._tiled: dict[tuple[int, int], Memory] = {}
        image, _, features = transforms()
        channels, outputs = tiling.channels
        post = [] if slope is None else [("eltwise", RELU, slope, 0.0)]
        for part in tiling.parts():
            tiles = tiling.tiles(part)
            made = OUT * OUT, tiles * outputs
            for group in range(tiling.group):
                extra: dict[int, Memory] = {}
                added: list[tuple] = []
                if bias is not None:
                    extra[BIAS] = self._bias_memory(group, tiles, outputs)
                if other is not None:
                    self.gather(other, tiling.feature_copies(part, group), "other")
                    extra[post_operand(0)] = self.planes("other", *made)
                    added.append(("binary", BINARY_ADD, plain(made)))
                patches = self.image_planes(source, part, group)
                self.product(image, patches, self.planes("planes", PLACES, tiles * channels))
                self.product(
                    self.planes("planes", PLACES, tiles, channels),
                    weights.memory(group, plain((PLACES, channels, outputs))),
                    self.planes("products", PLACES, tiles, outputs),
                )
                self.product(
                    features,
                    self.planes("products", PLACES, tiles * outputs),
                    self.planes("planes", *made),
                    [*added, *post],
                    extra,
                )
                self.scatter(target, tiling.feature_copies(part, group), "planes")

    def _bias_memory(self, group: int, tiles: int, outputs: int) -> Memory:
        """A group's bias, again for each tile; parts of as many tiles share it."""
        desc = plain((1, tiles * outputs))
        return self._tiled.setdefault((group, tiles), Memory(desc, Buffer(desc.nbytes)))

    def primitive(self) -> None:
        self._weights.refresh()
        if self._bias is not None:
            self._refresh_bias(self._bias)
        self.run_all()

    def _refresh_bias(self, bias: Operand | Memory) -> None:
        version = version_of(bias) if isinstance(bias, Operand) else self._weights.version()
        if version == self._bias_known:
            return
        values = bias.blob.cpu_data() if isinstance(bias, Operand) else bias.keep.floats
        for (group, tiles), memory in self._tiled.items():
            outputs = memory.desc.shape[1] // tiles
            tiled = memory.keep.floats[: tiles * outputs].reshape(tiles, outputs)
            tiled[...] = values[group * outputs : (group + 1) * outputs]
        self._bias_known = version


class Backward(_Pass):
    """The gradients of weights and bias, and of the image, where they are wanted.

    learned: the first two, or None; `before` of each has been called."""

    def __init__(
        self,
        run: ExecutionContext,
        tiling: Tiling,
        weights: Weights,
        source: Operand,
        target: Operand,
        learned: tuple[Gradient | None, Gradient | None],
        image_diff: Operand | None,
    ):
        super().__init__(run, tiling)
        weight, bias = (None if gradient is None else gradient.memory for gradient in learned)
        self._weights = None if image_diff is None else weights
        self.arguments = _bound(
            None if weight is None else source,
            target,
            None if image_diff is None else weights.argument,
            image_diff,
        )
        image = transforms()[0]
        image_back, weights_back, features_back = transforms(turned=True)
        channels, outputs = tiling.channels
        size = channels * outputs
        whole = tiling.tall % OUT == tiling.wide % OUT == 0
        for number, part in enumerate(tiling.parts()):
            tiles = tiling.tiles(part)
            post = [("sum", 1.0)] if number else []
            # Tiles that reach beyond the features keep zeros there.
            slot = "planes" if whole else f"features {tiling} {part[1]}"
            for group in range(tiling.group):
                self.gather(target, tiling.feature_copies(part, group), slot)
                if bias is not None:
                    self.product(
                        constant(np.ones((1, OUT * OUT * tiles), np.float32)),
                        self.planes(slot, OUT * OUT * tiles, outputs),
                        self.view(bias, plain((1, outputs)), group * outputs),
                        post,
                    )
                if weight is None and image_diff is None:
                    continue
                self.product(
                    features_back,
                    self.planes(slot, OUT * OUT, tiles * outputs),
                    self.planes("products", PLACES, tiles * outputs),
                )
                given = self.planes("products", PLACES, tiles, outputs)
                if weight is not None:
                    patches = self.image_planes(source, part, group)
                    self.product(image, patches, self.planes("planes", PLACES, tiles * channels))
                    seen = self.scratch(
                        "planes", strided((PLACES, channels, tiles), (tiles * channels, 1, channels))
                    )
                    gradient = plain((PLACES, channels, outputs))
                    self.product(
                        seen, given, self.scratch("gradients", gradient, group * PLACES * size), post
                    )
                if image_diff is not None:
                    turned = weights.memory(group, strided((PLACES, outputs, channels), (size, 1, outputs)))
                    self.product(given, turned, self.planes("planes", PLACES, tiles, channels))
                    self.product(
                        image_back,
                        self.planes("planes", PLACES, tiles * channels),
                        self.planes("products", PLACES, tiles * channels),
                    )
                    self.scatter(image_diff, tiling.image_copies(part, group), "products")
        if weight is not None:
            for group in range(tiling.group):
                self.product(
                    weights_back,
                    self.scratch("gradients", plain((PLACES, size)), group * PLACES * size),
                    self.view(weight, plain((TAPS * TAPS, size)), group * TAPS * TAPS * size),
                )

    def primitive(self) -> None:
        if self._weights is not None:
            self._weights.refresh()
        self.run_all()
