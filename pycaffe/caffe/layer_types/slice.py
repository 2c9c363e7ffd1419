"""Slice: cuts a blob into several along one axis."""

from __future__ import annotations

from collections.abc import Sequence

from ..blob import Blob
from ..layer import Layer
from ..layer_registry import register_layer


@register_layer("Slice")
class SliceLayer(Layer):
    """top[i] = the i-th part of bottom[0] along `axis`.

    bottom[0]: any shape with that axis, D long. Tops: at least one. A single top shares the bottom's memory.
    slice_param.axis (default 1, negative from the end), or the older slice_dim (default 1, not
    negative); not both.
    slice_param.slice_point: where each top but the first begins, rising, in (0, D]; without any, all tops
    are equally large.
    Gradient: the tops' diffs, joined.
    Raises LayerError for an axis outside, for points that do not fit, and when D is no multiple of the
    number of tops. Source: Caffe's slice_layer documentation.
    """

    exact_num_bottom = 1
    min_top = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.slice_param
        if param.HasField("axis") and param.HasField("slice_dim"):
            raise self.error("Either axis or slice_dim should be specified; not both.")
        self._field = "slice_dim" if param.HasField("slice_dim") else "axis"
        points = list(param.slice_point)
        if points and len(points) != len(top) - 1:
            raise self.error(
                "slice_point must be given once less than there are tops: "
                f"{len(points)} points for {len(top)} tops"
            )
        if any(b <= a for a, b in zip([0, *points], points, strict=False)):
            raise self.error(f"slice_point must rise from above 0, but is {points}")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if len(top) > 1:
            self.refuse_in_place(bottom, top)
        param, shape = self.layer_param.slice_param, bottom[0].shape
        axis = self.canonical_axis(getattr(param, self._field), bottom[0], self._field)
        size = shape[axis]
        if param.slice_point:
            ends = [*param.slice_point, size]
            if ends[-2] > size:
                raise self.error(
                    f"slice_point (={ends[-2]}) must not be greater than the size of axis {axis} (={size}) "
                    f"of a bottom of shape {shape}"
                )
        else:
            if size % len(top):
                raise self.error(
                    f"Number of top blobs ({len(top)}) should evenly divide input slice axis ({size}): axis "
                    f"{axis} of a bottom of shape {shape}; or give slice_point"
                )
            ends = [size // len(top) * (i + 1) for i in range(len(top))]
        begins = [0, *ends[:-1]]
        for blob, begin, end in zip(top, begins, ends, strict=True):
            blob.reshape((*shape[:axis], end - begin, *shape[axis + 1 :]))
        self._parts = [
            (*[slice(None)] * axis, slice(begin, end)) for begin, end in zip(begins, ends, strict=True)
        ]
        if len(top) == 1:
            top[0].share_data(bottom[0])
            top[0].share_diff(bottom[0])

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return ()

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if len(top) > 1:
            data = bottom[0].cpu_data()
            for blob, part in zip(top, self._parts, strict=True):
                blob.overwrite_cpu_data()[...] = data[part]

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0] and len(top) > 1:
            diff = bottom[0].overwrite_cpu_diff()
            for blob, part in zip(top, self._parts, strict=True):
                diff[part] = blob.cpu_diff()
