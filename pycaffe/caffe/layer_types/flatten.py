"""Flatten: makes one axis of several."""

from __future__ import annotations

from collections.abc import Sequence

from ..blob import Blob
from ..layer import Layer
from ..layer_registry import register_layer


@register_layer("Flatten")
class FlattenLayer(Layer):
    """top[0] = bottom[0] with the axes from `axis` to `end_axis` made one, without a copy.

    bottom[0]: any shape with these axes. top[0] shares its data and diff.
    flatten_param.axis (default 1), flatten_param.end_axis (default -1, inclusive); negative from the
    end. end_axis just before axis inserts an axis of size 1.
    Gradient: the top's diff. Raises LayerError for axes outside or the wrong way round, and in place.
    Source: Caffe's flatten_layer documentation.
    """

    exact_num_bottom = 1
    forward_does_nothing = True
    exact_num_top = 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.refuse_in_place(bottom, top)
        param, shape = self.layer_param.flatten_param, bottom[0].shape
        start = self.canonical_axis(param.axis, bottom[0])
        end = self.canonical_axis(param.end_axis, bottom[0], "end_axis") + 1
        if start > end:
            raise self.error(
                f"end_axis (={param.end_axis}) must not lie before axis (={param.axis}) in a bottom of shape "
                f"{shape}"
            )
        top[0].reshape((*shape[:start], bottom[0].axis_count(start, end), *shape[end:]))
        top[0].share_data(bottom[0])
        top[0].share_diff(bottom[0])

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        return ()

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        pass

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        pass
