"""DummyData: blobs filled by fillers, for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Sequence

from ..blob import Blob
from ..fillers import fill
from ..layer import Layer
from ..layer_registry import register_layer
from ..proto import caffe_pb2

_LEGACY = ("num", "channels", "height", "width")


@register_layer("DummyData")
class DummyDataLayer(Layer):
    """top[i] = numbers from a filler.

    No bottoms; any number of tops, at least one.
    dummy_data_param.data_filler: none (zeros), one for all tops, or one per top. `constant` fills once and
    leaves alone what is written later; every other type draws anew in each forward pass.
    dummy_data_param.shape: one for all tops, or one per top. num, channels, height, width (older, 4-D):
    each once or once per top, and then no shape.
    Shapes are set once, so that reshaping a top lasts. No gradient.
    Raises LayerError for other numbers of fillers or shapes, and what the filler raises.
    Source: Caffe's dummy_data_layer documentation.
    """

    exact_num_bottom = 0
    min_top = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param, count = self.layer_param.dummy_data_param, len(top)
        fillers = list(param.data_filler) or [caffe_pb2.FillerParameter(type="constant")]
        if len(fillers) not in (1, count):
            raise self.error(
                f"Number of data fillers must be 0, 1 or equal to the number of tops: {count}; you specified "
                f"{len(fillers)} data fillers."
            )
        for blob, shape in zip(top, self._shapes(count), strict=True):
            blob.reshape(shape)
        if len(fillers) == 1:
            fillers *= count
        self._refilled = [(i, filler) for i, filler in enumerate(fillers) if filler.type != "constant"]
        random = self.run.random(self.name).generator()
        for blob, filler in zip(top, fillers, strict=True):
            fill(blob.overwrite_cpu_data(), filler, random)

    def _shapes(self, count: int) -> list[list[int]]:
        param = self.layer_param.dummy_data_param
        legacy = {name: list(getattr(param, name)) for name in _LEGACY}
        if not any(legacy.values()):
            return self._per_top("shape", [list(shape.dim) for shape in param.shape], count)
        if param.shape:
            raise self.error(
                "Both shape and legacy fields were specified: keep shape, or num, channels, height and width"
            )
        columns = [self._per_top(name, values, count) for name, values in legacy.items()]
        return [list(shape) for shape in zip(*columns, strict=True)]

    def _per_top(self, name: str, values: list, count: int) -> list:
        if not values or len(values) not in (1, count):
            raise self.error(
                f"Must specify '{name}' once, or once per top blob ({count}); specified {len(values)}."
            )
        return values * count if len(values) == 1 else values

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        pass

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self._refilled:
            random = self.run.random(self.name).generator(self.run.iteration, self.run.sub_iteration)
            for i, filler in self._refilled:
                fill(top[i].overwrite_cpu_data(), filler, random)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        pass
