"""Tile: repeats a blob along one axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..blob import Blob
from ..layer import Layer
from ..layer_registry import register_layer


@register_layer("Tile")
class TileLayer(Layer):
    """top[0] = `tiles` copies of bottom[0], one after the other along `axis`.

    bottom[0]: any shape with that axis. top[0]: the same, `tiles` times as long there.
    tile_param.tiles (no default): number of copies, at least 1.
    tile_param.axis (default 1, negative from the end).
    Gradient: the sum over the copies.
    Raises LayerError for missing or too few tiles, and for an axis outside.
    Source: Caffe's tile_layer documentation.
    """

    exact_num_bottom = 1
    exact_num_top = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.tile_param
        if not param.HasField("tiles"):
            raise self.error("Number of tiles must be specified: tile_param { tiles: N }")
        if param.tiles < 1:
            raise self.error(f"Number of tiles must be positive, but tiles is {param.tiles}.")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.refuse_in_place(bottom, top)
        tiles, shape = self.layer_param.tile_param.tiles, bottom[0].shape
        axis = self.canonical_axis(self.layer_param.tile_param.axis, bottom[0])
        top[0].reshape((*shape[:axis], shape[axis] * tiles, *shape[axis + 1 :]))
        outer, inner = bottom[0].axis_count(0, axis), bottom[0].axis_count(axis)
        self._bottom_view, self._top_view = (outer, 1, inner), (outer, tiles, inner)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].overwrite_cpu_data().reshape(self._top_view)[...] = (
            bottom[0].cpu_data().reshape(self._bottom_view)
        )

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0]:
            diff = bottom[0].overwrite_cpu_diff().reshape(self._bottom_view)
            np.add.reduce(top[0].cpu_diff().reshape(self._top_view), axis=1, keepdims=True, out=diff)
